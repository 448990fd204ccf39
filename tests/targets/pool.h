/* Shared by targets: a pool, fences and flushes. */
#ifndef POOL_H
#define POOL_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB (1UL << 20)

/* Ends the target if something that must work fails. */
#define REQUIRE(condition) \
	do { \
		if (!(condition)) { \
			perror(#condition); \
			fprintf(stderr, "line %d\n", __LINE__); \
			exit(99); \
		} \
	} while (0)

static inline int open_pool(const char *path, size_t len)
{
	int fd = open(path, O_CREAT | O_RDWR, 0600);
	REQUIRE(fd >= 0);
	REQUIRE(ftruncate(fd, (off_t)len) == 0);
	return fd;
}

static inline char *map_fd(int fd, size_t len, off_t offset)
{
	void *start = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
	REQUIRE(start != MAP_FAILED);
	return (char *)start;
}

static inline char *map_pool(const char *path, size_t len)
{
	int fd = open_pool(path, len);
	char *start = map_fd(fd, len, 0);
	close(fd);
	return start;
}

static inline void store8(volatile void *at, uint64_t value)
{
	*(volatile uint64_t *)at = value;
}

static inline void flush(volatile void *at)
{
	__asm__ volatile("clflush %0" : "+m"(*(volatile char *)at));
}

static inline void sfence(void)
{
	__asm__ volatile("sfence" ::: "memory");
}

#endif
