/* System calls that write to a pool, resize it, make it durable or speak to the outside. */
#define _GNU_SOURCE
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "pool.h"

static char *pool;
static int fd;

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
	/* The end of the file comes first, then nothing at all. */
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
	/* Without a buffer of its own, it reads into the pool. */
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

/* Through another mapping, another descriptor, and for files that are no pools. */
static void durable_elsewhere(void)
{
	char *part = map_fd(fd, 8192, 4096);
	store8(part + 4096, 1);
	REQUIRE(msync(part + 4096, 4096, MS_SYNC) == 0);
	store8(part, 2);
	/* The kernel knows pages only. */
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

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} all[] = {
		{"into_pool", into_pool}, {"buffered_into_pool", buffered_into_pool},
		{"into_file", into_file}, {"resized", resized},
		{"durable", durable},	  {"durable_elsewhere", durable_elsewhere},
		{"told", told},
	};
	REQUIRE(argc == 3);
	fd = open_pool(argv[2], MIB);
	pool = map_fd(fd, MIB, 0);
	for (size_t at = 0; at < sizeof(all) / sizeof(*all); at++) {
		if (strcmp(argv[1], all[at].name) == 0) {
			all[at].run();
			return 0;
		}
	}
	return 98;
}
