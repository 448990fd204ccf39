/* Shared by the figures on raw persistent memory: a barrier, and an array with a backup of one element. */
#ifndef ANNOTATED_H
#define ANNOTATED_H

#include "../../../include/powerfail.h"
#include "../pool.h"

#define LINE __attribute__((aligned(64)))

#ifdef PM_CLFLUSHOPT
#define WRITE_BACK "clflushopt"
#else
#define WRITE_BACK "clwb"
#endif

/* Writes the line of an address back. A macro: the failure point must be in the line that uses it. */
#define write_back(at) \
	__asm__ volatile(WRITE_BACK " %0" : "+m"(*(volatile char *)(at)) : : "memory")

#define barrier(at) \
	do { \
		write_back(at); \
		__asm__ volatile("sfence" ::: "memory"); \
	} while (0)

#define ELEMENTS 8

struct backup {
	uint64_t index;
	uint64_t value;
};

/* The content before the update: no element is zero, so that a missing backup is noticed. */
static inline void fill(uint64_t *array)
{
	for (uint64_t i = 0; i < ELEMENTS; i++)
		array[i] = 10 * (i + 1);
	barrier(array);
}

#endif
