/*
 * Client requests of all kinds, with the pool in the first argument. The second argument selects the test:
 * "all" makes every request once, "many" makes as many flushes as the third argument says, "anonymous"
 * declares memory persistent that is not a pool, "threads" makes requests while the pool is being mapped.
 */
#include "pool.h"
#include "../programs/pmemcheck_requests.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH 65536

static void all(char *pool)
{
	char *line = pool + 4096;

	printf("valgrind %lu\n", (unsigned long)RUNNING_ON_VALGRIND());
	REGISTER_MAPPING(pool, LENGTH);
	REGISTER_FILE(3, pool, LENGTH, 0);
	printf("mapping %lu\n", (unsigned long)CHECK_MAPPING(pool, LENGTH));
	printf("other %lu\n", (unsigned long)CHECK_MAPPING(stdout, 1));
	PRINT_MAPPINGS();
	EMIT_LOG("one.BEGIN");
	line[0] = 1;
	DO_FLUSH(line, 130);
	DO_FENCE();
	EMIT_LOG("one.END");
	START_TX();
	START_TX_N(7);
	ADD_TO_TX(line + 8, 8);
	ADD_TO_TX_N(7, line + 16, 8);
	line[8] = 2;
	line[16] = 3;
	REMOVE_FROM_TX(line + 8, 8);
	REMOVE_FROM_TX_N(7, line + 16, 8);
	END_TX_N(7);
	END_TX();
	ADD_THREAD_TX_N(8);
	REMOVE_THREAD_FROM_TX_N(8);
	ADD_TO_GLOBAL_TX_IGNORE(line + 24, 8);
	SET_CLEAN(line, 64);
	WRITE_STATS();
	/* Of another tool, of pmemcheck but reserved, and of no tool. */
	printf("memcheck %lu\n", (unsigned long)request(11, 0x4d430001, 0, 0, 0, 0));
	printf("reserved %lu\n", (unsigned long)request(12, PMEMCHECK + 0x0c, 0, 0, 0, 0));
	printf("unknown %lu\n", (unsigned long)request(13, 0x58590000, 0, 0, 0, 0));
	REMOVE_MAPPING(pool, LENGTH);
}

static atomic_int started;
static atomic_bool is_over;

/* Makes requests until the end, and at least once; returns whether the answer was always the default. */
static void *ask(void *argument)
{
	uint64_t fallback = (uint64_t)(uintptr_t)argument;
	uintptr_t is_right = 1;

	do {
		for (int round = 0; round < 1000; round++)
			is_right &= request(fallback, 0x1001, 0, 0, 0, 0) == fallback;
		started++;
	} while (!is_over);
	return (void *)is_right;
}

static void threads(const char *path)
{
	pthread_t asking[4];
	char *pool;

	for (uintptr_t number = 0; number < 4; number++)
		REQUIRE(pthread_create(&asking[number], NULL, ask, (void *)(number + 5)) == 0);
	while (started < 8)
		;
	pool = map_pool(path, LENGTH);
	for (int until = started + 40; started < until;)
		pool[64]++;
	is_over = true;
	for (int number = 0; number < 4; number++) {
		void *is_right;

		REQUIRE(pthread_join(asking[number], &is_right) == 0);
		printf("%s\n", is_right ? "right" : "wrong");
	}
}

int main(int count, char **arguments)
{
	const char *what = count > 2 ? arguments[2] : "all";
	char *pool;

	if (strcmp(what, "threads") == 0) {
		threads(arguments[1]);
		return 0;
	}
	pool = map_pool(arguments[1], LENGTH);
	if (strcmp(what, "all") == 0)
		all(pool);
	if (strcmp(what, "many") == 0) {
		for (long round = atol(arguments[3]); round > 0; round--) {
			pool[round % 64] = (char)round;
			DO_FLUSH(pool, 64);
			DO_FENCE();
		}
	}
	if (strcmp(what, "anonymous") == 0) {
		char *memory = calloc(1, 4096);

		REGISTER_MAPPING(memory, 4096);
		memory[1] = 1;
		REMOVE_MAPPING(memory, 4096);
		free(memory);
	}
	return 0;
}
