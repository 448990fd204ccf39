/* Writes to a pool that do not go through the usual functions of the C library. The first argument says which. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/aio_abi.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "pool.h"

#ifdef HAS_NOTE_OF_GO
__asm__(".pushsection .note.go.buildid, \"a\", @note\n"
	".long 4, 4, 4\n"
	".ascii \"Go\\0\\0none\"\n"
	".popsection");
#endif

static inline long raw(long number, long a, long b, long c, long d, long e, long f)
{
	long result;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

/* The first mapping of all. */
static void mapped_raw(const char *path)
{
	long fd = raw(SYS_open, (long)path, O_CREAT | O_RDWR, 0600, 0, 0, 0);
	REQUIRE(fd >= 0);
	REQUIRE(raw(SYS_ftruncate, fd, MIB, 0, 0, 0, 0) == 0);
	char *pool = (char *)raw(SYS_mmap, 0, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	store8(pool + 64, 101);
	flush(pool + 64);
	sfence();
}

static int other_file(void)
{
	int fd = memfd_create("other", 0);
	REQUIRE(fd >= 0);
	REQUIRE(write(fd, "abcdefgh", 8) == 8);
	REQUIRE(lseek(fd, 0, SEEK_SET) == 0);
	return fd;
}

static void submitted(int pool_fd)
{
	aio_context_t context = 0;
	REQUIRE(syscall(SYS_io_setup, 1, &context) == 0);
	struct iocb request = {
		.aio_lio_opcode = IOCB_CMD_PWRITE,
		.aio_fildes = (uint32_t)pool_fd,
		.aio_buf = (uint64_t)(uintptr_t)"abcdefgh",
		.aio_nbytes = 8,
	};
	struct iocb *requests[] = {&request};
	syscall(SYS_io_submit, context, 1L, requests);
}

static void direct(const char *path, char *pool)
{
	int fd = open(path, O_RDWR | O_DIRECT);
	if (fd < 0 && errno == EINVAL)
		exit(77);
	REQUIRE(fd >= 0);
	char *buffer;
	REQUIRE(posix_memalign((void **)&buffer, 4096, 4096) == 0);
	memset(buffer, 'd', 4096);
	REQUIRE(pwrite(fd, buffer, 4096, 8192) == 4096);
	REQUIRE(pread(fd, pool + 16384, 4096, 8192) == 4096);
	REQUIRE(pool[16384] == 'd');
}

int main(int argc, char **argv)
{
	REQUIRE(argc == 3);
	const char *what = argv[1];
#define IS(name) (strcmp(what, name) == 0)
	if (IS("mapped_raw")) {
		mapped_raw(argv[2]);
		return 0;
	}
	int fd = open_pool(argv[2], MIB);
	char *pool = map_fd(fd, MIB, 0);
	store8(pool, 1);
	struct iovec from = {"abcdefgh", 8}, to = {pool + 64, 8};
	int ends[2];
	REQUIRE(pipe(ends) == 0 && write(ends[1], "abcdefgh", 8) == 8);
	if (IS("sendfile"))
		sendfile(fd, other_file(), NULL, 8);
	else if (IS("splice"))
		splice(ends[0], NULL, fd, NULL, 8, 0);
	else if (IS("copy_file_range"))
		copy_file_range(other_file(), NULL, fd, NULL, 8, 0);
	else if (IS("raw_copy_file_range"))
		raw(SYS_copy_file_range, other_file(), 0, fd, 0, 8, 0);
	else if (IS("process_vm_writev"))
		process_vm_writev(getpid(), &from, 1, &to, 1, 0);
	else if (IS("process_vm_readv"))
		process_vm_readv(getpid(), &to, 1, &from, 1, 0);
	else if (IS("io_submit"))
		submitted(fd);
	else if (IS("io_uring")) {
		char parameters[256] = {0};
		REQUIRE(syscall(SYS_io_uring_setup, 8, parameters) == -1 && errno == ENOSYS);
		REQUIRE(raw(SYS_io_uring_setup, 8, (long)parameters, 0, 0, 0, 0) == -ENOSYS);
		store8(pool + 64, 101);
	} else if (IS("direct"))
		direct(argv[2], pool);
	else
		exit(97);
	return 0;
}
