/* Shared by all indexes: keys, their values, and the heap. The program around them is in judge.h. */
#ifndef INDEX_H
#define INDEX_H

#include "heap.h"

#define KEYS_MAX 4096UL

/* Shuffles bits; different numbers stay different. */
static inline uint64_t mix(uint64_t number)
{
	number += 0x9e3779b97f4a7c15UL;
	number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9UL;
	number = (number ^ (number >> 27)) * 0x94d049bb133111ebUL;
	return number ^ (number >> 31);
}

/* The value of a key: neither small nor that of another key. */
static inline uint64_t value_of(uint64_t key)
{
	return mix(~key) | 1UL << 63;
}

typedef void visitor(uint64_t key, uint64_t value);

#endif
