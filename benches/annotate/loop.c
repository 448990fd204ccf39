/*
 * A loop with or without annotations: what annotations cost without powerfail. Prints nanoseconds per
 * iteration, the best of several runs.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef ANNOTATED
#include "../../include/powerfail.h"
#define SAY(annotation) annotation
#else
#define SAY(annotation) ((void)0)
#endif

#define SLOTS 1024
#define BEST_OF 15

struct slot {
	uint64_t key;
	uint64_t value;
};

/* Visible to other files, so that the compiler keeps the stores. */
struct slot table[SLOTS];

/* The shortest possible loop around an annotation. */
static __attribute__((noinline)) void tight(uint64_t rounds)
{
	for (uint64_t i = 0; i < rounds; i++) {
		SAY(powerfail_failure_point(1));
		__asm__ volatile("" : "+r"(i));
	}
}

/* A durable insertion into a hash table, annotated as a real program would be. */
static __attribute__((noinline)) void insert(uint64_t rounds)
{
	for (uint64_t i = 0; i < rounds; i++) {
		uint64_t hash = i * 0x9e3779b97f4a7c15;
		struct slot *slot = &table[hash >> 54];
		SAY(powerfail_operation_begin(i));
		slot->value = hash;
		SAY(powerfail_failure_point(1));
		__asm__ volatile("" ::: "memory");
		slot->key = i;
		__asm__ volatile("clflush %0\n\tsfence" : "+m"(*slot) : : "memory");
		SAY(powerfail_operation_end(i));
	}
}

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	void (*work)(uint64_t) = argc > 1 && !strcmp(argv[1], "tight") ? tight : insert;
	uint64_t rounds = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000000;
	double best = 1e9;
	for (int i = 0; i < BEST_OF; i++) {
		double begun = seconds();
		work(rounds);
		double took = seconds() - begun;
		best = took < best ? took : best;
	}
	printf("%.4f\n", best * 1e9 / (double)rounds);
	return 0;
}
