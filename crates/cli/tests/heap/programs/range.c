/* Emulated persistent memory: an anonymous mapping that is registered. With BUG a record is counted before it
 * is durable. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "pm.h"

#define LENGTH (64 * 1024)

#ifndef ADDRESS
#define ADDRESS 0
#define PLACE 0
#else
#define PLACE MAP_FIXED_NOREPLACE
#endif

struct memory {
	uint64_t count;
	struct memory *self;
	uint64_t records[64] __attribute__((aligned(64)));
};

int main(int argc, char **argv)
{
	(void)argv;
	struct memory *memory = mmap((void *)ADDRESS, LENGTH, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS | PLACE, -1, 0);
	if (memory == MAP_FAILED)
		return 2;
	/* The content at the time of registration belongs to the range. */
	memory->records[63] = 77;
	if (powerfail_register_pool((char *)memory + 8, LENGTH, "odd") > 0 ||
	    powerfail_register_pool(memory, LENGTH, "a/b") > 0)
		return 3;
	int registered = powerfail_register_pool(memory, LENGTH, "memory");
	if (registered < 0)
		return 4;
	if (argc > 1) {
		if (registered != 1 || memory->records[63] != 77)
			return 5;
		if (memory->self && memory->self != memory)
			return 6;
		for (uint64_t i = 0; i < memory->count; i++)
			if (memory->records[8 * i] != i + 100)
				return 1;
		return 0;
	}
	memory->self = memory;
	pm_persist(&memory->self, sizeof memory->self);
	for (uint64_t i = 0; i < 4; i++) {
		memory->records[8 * i] = i + 100; // planted
#ifndef BUG
		pm_persist(&memory->records[8 * i], 8);
#endif
		memory->count = i + 1;
		pm_persist(&memory->count, sizeof memory->count);
	}
	printf("%d\n", registered);
	return 0;
}
