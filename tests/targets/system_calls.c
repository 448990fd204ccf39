/* System calls that write to a pool, resize it, make it durable or write output. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "pool.h"

static char *pool;
static int fd;
static const char *path;

static int file_with(const char *text)
{
	int file = memfd_create("source", 0);
	REQUIRE(file >= 0);
	REQUIRE(write(file, text, strlen(text)) == (ssize_t)strlen(text));
	REQUIRE(lseek(file, 0, SEEK_SET) == 0);
	return file;
}

static void into_pool(void)
{
	int file = file_with("abcdefghijklmnopqrstuvwxyz");
	REQUIRE(read(file, pool, 5) == 5);
	REQUIRE(pread(file, pool + 64, 7, 10) == 7);
	char aside[3];
	struct iovec parts[] = {{pool + 128, 2}, {aside, 3}, {pool + 190, 4}};
	REQUIRE(readv(file, parts, 3) == 9);
	REQUIRE(preadv(file, parts, 3, 1) == 9);
	/* First the data up to the end of the file, then nothing at all. */
	REQUIRE(pread(file, pool + 256, 100, 20) == 6);
	REQUIRE(pread(file, pool + 256, 100, 26) == 0);
	REQUIRE(pread(-1, pool + 256, 100, 0) == -1);
	int pair[2];
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	REQUIRE(send(pair[0], "0123456789", 10, 0) == 10);
	REQUIRE(recv(pair[1], pool + 320, 4, 0) == 4);
	struct iovec more[] = {{pool + 384, 1}, {pool + 400, 9}};
	struct msghdr message = {.msg_iov = more, .msg_iovlen = 2};
	REQUIRE(recvmsg(pair[1], &message, 0) == 6);
	REQUIRE(send(pair[0], "xyz", 3, 0) == 3);
	REQUIRE(recvfrom(pair[1], pool + 448, 64, 0, NULL, NULL) == 3);
	REQUIRE(getrandom(pool + 512, 32, 0) == 32);
}

static void buffered_into_pool(void)
{
	int file = file_with("first line\nsecond line\n");
	FILE *stream = fdopen(file, "r");
	REQUIRE(fread(pool, 1, 11, stream) == 11);
	REQUIRE(fgets(pool + 64, 64, stream) != NULL);
	rewind(stream);
	/* The stream is unbuffered, so it reads directly into the pool. */
	setvbuf(stream, NULL, _IONBF, 0);
	REQUIRE(fread(pool + 128, 1, 11, stream) == 11);
	fclose(stream);
	REQUIRE(memcmp(pool, pool + 128, 11) == 0);
}

static void into_file(void)
{
	REQUIRE(pwrite(fd, "hello", 5, 100) == 5);
	REQUIRE(lseek(fd, 200, SEEK_SET) == 200);
	REQUIRE(write(fd, "ab", 2) == 2);
	REQUIRE(write(fd, "cd", 2) == 2);
	struct iovec parts[] = {{"one", 3}, {"fourteen", 8}};
	REQUIRE(pwritev(fd, parts, 2, 300) == 11);
	REQUIRE(lseek(fd, 400, SEEK_SET) == 400);
	REQUIRE(writev(fd, parts, 2) == 11);
	REQUIRE(memcmp(pool + 400, "onefourteen", 11) == 0);
	/* From the pool to the pool. */
	REQUIRE(pwrite(fd, pool + 100, 5, 500) == 5);
}

static void resized(void)
{
	store8(pool, 1);
	REQUIRE(ftruncate(fd, 2 * MIB) == 0);
	char *more = map_fd(fd, 2 * MIB, 0);
	store8(more + MIB + 64, 2);
	REQUIRE(ftruncate(fd, MIB / 2) == 0);
	store8(more + 64, 3);
	REQUIRE(ftruncate(fd, MIB) == 0);
	REQUIRE(*(volatile uint64_t *)(more + MIB / 2) == 0);
	store8(more + MIB / 2 + 64, 4);
	REQUIRE(truncate(path, 3 * MIB) == 0);
	REQUIRE(syscall(SYS_truncate, path, MIB) == 0);
	/* Unmapped, it is still a pool. */
	REQUIRE(munmap(pool, MIB) == 0 && munmap(more, 2 * MIB) == 0);
	REQUIRE(truncate(path, 2 * MIB) == 0);
	REQUIRE(truncate("/dev/null", 1) == -1 && errno == EINVAL);
}

static void durable(void)
{
	store8(pool + 4096, 1);
	REQUIRE(msync(pool + 4096, 4096, MS_SYNC) == 0);
	store8(pool, 2);
	REQUIRE(fsync(fd) == 0);
	store8(pool + 64, 3);
	REQUIRE(fdatasync(fd) == 0);
	/* These make nothing durable. */
	REQUIRE(msync(pool, 4096, MS_ASYNC) == 0);
	REQUIRE(msync(pool, 4096, MS_INVALIDATE) == 0);
	REQUIRE(msync(pool, 4096, 0) == 0);
	REQUIRE(msync(pool + 1, 4096, MS_SYNC) == -1);
	REQUIRE(fsync(-1) == -1);
}

/* Through another mapping, another descriptor, and for files that are not pools. */
static void durable_elsewhere(void)
{
	char *part = map_fd(fd, 8192, 4096);
	store8(part + 4096, 1);
	REQUIRE(msync(part + 4096, 4096, MS_SYNC) == 0);
	store8(part, 2);
	/* The kernel works with whole pages. */
	REQUIRE(msync(part, 100, MS_SYNC) == 0);
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int again = open(path, O_RDWR);
	REQUIRE(again >= 0);
	store8(pool, 3);
	REQUIRE(fdatasync(again) == 0);
	int other = memfd_create("other", 0);
	REQUIRE(fsync(other) == 0 && fdatasync(other) == 0);
	char *private = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(private != MAP_FAILED && msync(private, 4096, MS_SYNC) == 0);
	store8(pool + 8, 4);
	/* Its file is durable whether it is mapped or not. */
	REQUIRE(munmap(part, 8192) == 0);
	REQUIRE(fsync(fd) == 0);
}

static void told(void)
{
	store8(pool, 1);
	printf("printed %d\n", 42);
	fflush(stdout);
	store8(pool, 2);
	REQUIRE(write(1, "written\n", 8) == 8);
	store8(pool, 3);
	struct iovec parts[] = {{"in ", 3}, {"pieces\n", 7}};
	REQUIRE(writev(2, parts, 2) == 10);
	store8(pool, 4);
	char text[1000];
	memset(text, 'x', sizeof(text));
	int file = memfd_create("outside", 0);
	REQUIRE(write(file, text, sizeof(text)) == (ssize_t)sizeof(text));
	store8(pool, 5);
	int pair[2];
	REQUIRE(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
	REQUIRE(send(pair[0], "sent", 4, 0) == 4);
	store8(pool, 6);
	fputs("at the end\n", stdout);
	puts("");
}


/* Writes that extend the file beyond the mapped part. */
static void appended(void)
{
	int end = open(path, O_RDWR | O_APPEND);
	REQUIRE(end >= 0);
	REQUIRE(write(end, "one", 3) == 3);
	/* The kernel appends, whatever the offset. */
	REQUIRE(pwrite(end, "two", 3, 5) == 3);
	struct iovec parts[] = {{"thr", 3}, {"ee", 2}};
	REQUIRE(writev(end, parts, 2) == 5);
	REQUIRE(pwrite(fd, "far", 3, 3 * MIB) == 3);
	/* The part that was written beyond the mapping is mapped now. */
	char *all = map_fd(fd, 4 * MIB, 0);
	REQUIRE(memcmp(all + MIB, "onetwothree", 11) == 0);
	store8(all + MIB + 16, 4);
	REQUIRE(munmap(all, 4 * MIB) == 0 && munmap(pool, MIB) == 0);
	/* Nothing of it is mapped any more. */
	REQUIRE(pwrite(fd, "none", 4, 64) == 4);
	REQUIRE(fsync(fd) == 0);
}

/* A pool that is not mapped any more. */
static void unmapped(void)
{
	store8(pool, 1);
	REQUIRE(munmap(pool, MIB) == 0);
	REQUIRE(pwrite(fd, "later", 5, 64) == 5);
	REQUIRE(ftruncate(fd, 2 * (off_t)MIB) == 0);
}

/* Holes and zeros. */
static void punched(void)
{
	memset(pool, 'x', 3 * 4096);
	REQUIRE(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100, 5000) == 0);
	REQUIRE(pool[99] == 'x' && pool[100] == 0 && pool[5099] == 0 && pool[5100] == 'x');
	store8(pool + 4096, 1);
	/* Most of this is already zero. */
	REQUIRE(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)MIB) == 0);
	REQUIRE(*(volatile uint64_t *)(pool + 4096) == 0 && pool[3 * 4096 - 1] == 0);
	REQUIRE(fallocate(fd, 0, 0, 2 * (off_t)MIB) == 0);
}

static inline long own_call(long number, long a, long b, long c, long d)
{
	long result;
	register long fourth __asm__("r10") = d;
	__asm__ volatile("syscall"
			 : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
			 : "rcx", "r11", "memory");
	return result;
}

/* System calls without their library functions. */
static void raw(void)
{
	int source = file_with("abcdefgh");
	REQUIRE(syscall(SYS_read, source, pool, 3) == 3);
	REQUIRE(syscall(SYS_pread64, source, pool + 64, 2, 4) == 2);
	REQUIRE(syscall(SYS_pwrite64, fd, "file", 4, 128) == 4);
	REQUIRE(syscall(SYS_read, -1, pool, 3) == -1);
	char *view = (char *)syscall(SYS_mmap, NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	REQUIRE(view != MAP_FAILED && memcmp(view, "abc", 3) == 0);
	store8(view + 192, 0x3131313131313131);
	REQUIRE(syscall(SYS_msync, view, 4096, MS_SYNC) == 0);
	REQUIRE(syscall(SYS_munmap, view, MIB) == 0);
	REQUIRE(syscall(SYS_getrandom, pool + 256, 4, 0) == 4);
	memcpy(pool + 256, "rand", 4);
	/* By an instruction of the program. */
	for (int round = 0; round < 2; round++) {
		REQUIRE(own_call(SYS_pread64, source, (long)(pool + 320 + round), 1, round) == 1);
		REQUIRE(own_call(SYS_getppid, 0, 0, 0, 0) == getppid());
		REQUIRE(own_call(SYS_read, -1, (long)pool, 1, 0) < 0);
	}
}

static int in_clone(void *number)
{
	for (uint64_t round = 1; round <= 100; round++) {
		store8(pool + 64 * (long)number, round);
		flush(pool + 64 * (long)number);
		sfence();
	}
	return 0;
}

/* Threads and processes created with clone, and processes created with system calls. */
static char stacks[4][64 << 10] __attribute__((aligned(64)));

static void cloned(void)
{
	static volatile int ended[2] = {1, 1};
	const int thread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
			   CLONE_SYSVSEM | CLONE_CHILD_CLEARTID;
	for (long number = 0; number < 2; number++)
		REQUIRE(clone(in_clone, stacks[number] + sizeof(stacks[number]), thread, (void *)number,
			      NULL, NULL, (void *)&ended[number]) > 0);
	in_clone((void *)2L);
	for (int number = 0; number < 2; number++)
		while (ended[number] != 0)
			sched_yield();
	int child = clone(in_clone, stacks[2] + sizeof(stacks[2]), SIGCHLD, (void *)3L);
	REQUIRE(child > 0);
	in_clone((void *)4L);
	int status;
	REQUIRE(waitpid(child, &status, 0) == child && status == 0);
	child = (int)syscall(SYS_fork);
	REQUIRE(child >= 0);
	in_clone((void *)(child == 0 ? 5L : 6L));
	if (child == 0)
		_exit(0);
	REQUIRE(waitpid(child, &status, 0) == child && status == 0);
	child = (int)own_call(SYS_clone, SIGCHLD, 0, 0, 0);
	REQUIRE(child >= 0);
	in_clone((void *)(child == 0 ? 7L : 8L));
	if (child == 0)
		_exit(0);
	REQUIRE(waitpid(child, &status, 0) == child && status == 0);
}

static void shared_memory(void)
{
	store8(pool, 1);
	clone(in_clone, stacks[0] + sizeof(stacks[0]), CLONE_VM | SIGCHLD, (void *)0L);
}

static void raw_thread(void)
{
	store8(pool, 1);
	syscall(SYS_clone, CLONE_VM | CLONE_SIGHAND | CLONE_THREAD, stacks[0] + sizeof(stacks[0]), 0, 0, 0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} all[] = {
		{"into_pool", into_pool}, {"buffered_into_pool", buffered_into_pool},
		{"into_file", into_file}, {"resized", resized},
		{"durable", durable},	  {"told", told},
		{"appended", appended},	  {"punched", punched},
		{"unmapped", unmapped},
		{"raw", raw},		  {"cloned", cloned},
		{"shared_memory", shared_memory}, {"raw_thread", raw_thread},
		{"durable_elsewhere", durable_elsewhere},
	};
	REQUIRE(argc == 3);
	path = argv[2];
	fd = open_pool(path, MIB);
	pool = map_fd(fd, MIB, 0);
	for (size_t at = 0; at < sizeof(all) / sizeof(*all); at++) {
		if (strcmp(argv[1], all[at].name) == 0) {
			all[at].run();
			return 0;
		}
	}
	return 98;
}
