/*
 * Shared by the programs with planted bugs: a pool in a mapped file, flushes and fences.
 *
 * Flushes and fences are macros, not functions: a finding must point to the line of the program that uses
 * them. The instruction is clwb; -DPM_CLFLUSHOPT selects clflushopt, for processors without clwb.
 */
#ifndef PM_H
#define PM_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __cplusplus
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#endif

#ifdef PM_CLFLUSHOPT
#define PM_FLUSH_NAME "clflushopt"
#else
#define PM_FLUSH_NAME "clwb"
#endif

/* A field that begins a new line. */
#define PM_LINE __attribute__((aligned(64)))

/* Writes the line of an address back. */
#define pm_flush(at) \
	__asm__ volatile(PM_FLUSH_NAME " %0" : "+m"(*(volatile char *)(at)) : : "memory")

/* Waits for the flushes before it. */
#define pm_fence() __asm__ volatile("sfence" ::: "memory")

/* Makes the line of an address durable. */
#define pm_persist(at) \
	do { \
		pm_flush(at); \
		pm_fence(); \
	} while (0)

/* Writes all lines of a range back. */
#define pm_flush_range(at, len) \
	do { \
		uintptr_t pm_line = (uintptr_t)(at) & ~(uintptr_t)63; \
		uintptr_t pm_end = (uintptr_t)(at) + (len); \
		for (; pm_line < pm_end; pm_line += 64) \
			pm_flush(pm_line); \
	} while (0)

/* Stores eight bytes with a non-temporal store. */
#define pm_store_past_cache(at, value) \
	__asm__ volatile("movnti %1, %0" : "=m"(*(at)) : "r"((uint64_t)(value)) : "memory")

/* Ends the program if something that must work fails. */
#define PM_REQUIRE(condition) \
	do { \
		if (!(condition)) { \
			perror(#condition); \
			exit(99); \
		} \
	} while (0)

/* Maps a pool, which is created if it is missing and extended with zeros if it is too short. */
static inline void *pm_open(const char *path, size_t len)
{
	struct stat status;
	int fd = open(path, O_CREAT | O_RDWR, 0600);
	PM_REQUIRE(fd >= 0);
	PM_REQUIRE(fstat(fd, &status) == 0);
	if ((size_t)status.st_size < len)
		PM_REQUIRE(ftruncate(fd, (off_t)len) == 0);
	void *pool = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	PM_REQUIRE(pool != MAP_FAILED);
	close(fd);
	return pool;
}

/* Whether the program was called as `program POOL MODE`. */
static inline int pm_mode(int argc, char **argv, const char *mode)
{
	PM_REQUIRE(argc >= 2);
	return argc > 2 && strcmp(argv[2], mode) == 0;
}

/*
 * Tells the user that an operation is complete. write() may take a lock, and a locked operation is a fence: a
 * flush before it may be complete when the user reads the answer, a store may not.
 */
static inline void pm_acknowledge(unsigned long number)
{
	char text[32] = "ok ";
	size_t len = 3, first;
	for (unsigned long rest = number; rest >= 10; rest /= 10)
		len++;
	first = len++;
	for (; first >= 3; first--, number /= 10)
		text[first] = (char)('0' + number % 10);
	text[len++] = '\n';
	PM_REQUIRE(write(STDOUT_FILENO, text, len) == (ssize_t)len);
}

#endif
