/*
 * A persistent heap: a pool at the same address in every process, so that it can contain plain pointers.
 *
 * An allocator that moves a cursor forward, and one root pointer. The cursor is durable before the memory is
 * handed out: memory after the durable cursor was never written, whatever a crash leaves, and nothing is
 * handed out twice. Memory that is allocated but not linked when the power fails is lost, which is acceptable
 * for such indexes. Fresh memory is arbitrary: the caller must fill it.
 */
#ifndef HEAP_H
#define HEAP_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <cpuid.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The planted bug that is built in: 0 is none. Each program has its list. */
#ifndef BUG
#define BUG 0
#endif

#define LINE_BYTES 64UL
/* Data that begins a new line. */
#define LINE __attribute__((aligned(64)))

/* An address range that programs do not use, and where the recorder can map pools. */
#define HEAP_ADDRESS ((void *)0x100040000000UL)
#define HEAP_BYTES (1UL << 20)
#define HEAP_MAGIC 0x31706165682d6670UL

/* Ends the program if something that is unrelated to crashes fails. */
#define REQUIRE(condition) \
	do { \
		if (!(condition)) { \
			perror(#condition); \
			exit(99); \
		} \
	} while (0)

/* Ends recovery if the pool is not a possible result of a crash. */
#define INTACT(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: damaged: %s\n", __FILE__, __LINE__, #condition); \
			exit(1); \
		} \
	} while (0)

/* A store of eight bytes that the compiler neither splits nor moves before earlier ones. */
#define STORE(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELEASE)

struct heap {
	/* Written last when the pool is created. */
	LINE uint64_t magic;
	/* Address of the first byte that is not handed out. */
	LINE uint64_t cursor;
	/* The root of the program. */
	LINE void *root;
	/* The number of completed inserts. */
	LINE uint64_t acknowledged;
};

static struct heap *const heap = HEAP_ADDRESS;

static enum { CLFLUSH, CLFLUSHOPT, CLWB } flush_instruction;

static inline void flush_line(const void *at)
{
	volatile char *place = (volatile char *)(uintptr_t)at;
	switch (flush_instruction) {
	case CLWB:
		__asm__ volatile("clwb %0" : "+m"(*place) : : "memory");
		break;
	case CLFLUSHOPT:
		__asm__ volatile("clflushopt %0" : "+m"(*place) : : "memory");
		break;
	case CLFLUSH:
		__asm__ volatile("clflush %0" : "+m"(*place) : : "memory");
		break;
	}
}

static inline void flush(const void *at, size_t len)
{
	uintptr_t end = (uintptr_t)at + len;
	for (uintptr_t line = (uintptr_t)at & ~(LINE_BYTES - 1); line < end; line += LINE_BYTES)
		flush_line((const void *)line);
}

static inline void fence(void)
{
	__asm__ volatile("sfence" ::: "memory");
}

static inline void persist(const void *at, size_t len)
{
	flush(at, len);
	fence();
}

static inline void choose_flush_instruction(void)
{
	unsigned eax, ebx = 0, ecx, edx;
	if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
		ebx = 0;
	flush_instruction = ebx & bit_CLWB ? CLWB : ebx & bit_CLFLUSHOPT ? CLFLUSHOPT : CLFLUSH;
}

/* Whether an address can be that of an object on the heap. Does not read the cursor: that would be another
 * observation of recovery. */
static inline bool heap_holds(const void *at, size_t len)
{
	uintptr_t first = (uintptr_t)heap + sizeof(*heap), place = (uintptr_t)at;
	uintptr_t end = (uintptr_t)heap + HEAP_BYTES;
	return place >= first && place % 8 == 0 && place < end && len <= end - place;
}

/* Maps the pool, which is created if it is missing or incomplete. */
static inline void heap_open(const char *path)
{
	struct stat status;
	choose_flush_instruction();
	int fd = open(path, O_CREAT | O_RDWR, 0600);
	REQUIRE(fd >= 0);
	REQUIRE(fstat(fd, &status) == 0);
	if ((size_t)status.st_size < HEAP_BYTES)
		REQUIRE(ftruncate(fd, HEAP_BYTES) == 0);
	int flags = MAP_SHARED | MAP_FIXED_NOREPLACE;
	void *start = mmap(HEAP_ADDRESS, HEAP_BYTES, PROT_READ | PROT_WRITE, flags, fd, 0);
	REQUIRE(start == HEAP_ADDRESS);
	close(fd);
	if (heap->magic == HEAP_MAGIC)
		return;
	heap->cursor = (uint64_t)(heap + 1);
	heap->root = NULL;
	heap->acknowledged = 0;
	persist(&heap->cursor, (size_t)((char *)(heap + 1) - (char *)&heap->cursor));
	STORE(heap->magic, HEAP_MAGIC);
	persist(&heap->magic, sizeof(heap->magic));
}

/* Whole lines, with arbitrary content. */
static inline void *heap_allocate(size_t len)
{
	uint64_t start = heap->cursor;
	uint64_t end = start + ((len + LINE_BYTES - 1) & ~(LINE_BYTES - 1));
	INTACT(start >= (uint64_t)(heap + 1) && start % LINE_BYTES == 0);
	REQUIRE(end <= (uint64_t)heap + HEAP_BYTES);
	STORE(heap->cursor, end);
	persist(&heap->cursor, sizeof(heap->cursor));
	return (void *)start;
}

#endif
