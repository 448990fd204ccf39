/*
 * Client requests of all kinds, with the pool in the first argument; the second one says what else:
 * "all" makes every request once, "many" makes as many flushes as the third argument says, "anonymous"
 * calls memory persistent that is no pool.
 */
#include "pool.h"
#include "pmemcheck_requests.h"

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
	/* Of another tool, of pmemcheck but reserved, and of nobody. */
	printf("memcheck %lu\n", (unsigned long)request(11, 0x4d430001, 0, 0, 0, 0));
	printf("reserved %lu\n", (unsigned long)request(12, PMEMCHECK + 0x0c, 0, 0, 0, 0));
	printf("unknown %lu\n", (unsigned long)request(13, 0x58590000, 0, 0, 0, 0));
	REMOVE_MAPPING(pool, LENGTH);
}

int main(int count, char **arguments)
{
	char *pool = map_pool(arguments[1], LENGTH);
	const char *what = count > 2 ? arguments[2] : "all";

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
