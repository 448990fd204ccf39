// Flushes and fences that are needed in some executions of a line and useless in others. The second argument selects one.
#include "../../../../../tests/programs/pm.h"

struct pool {
	uint64_t lines[8][8];
	uint64_t last PM_LINE;
};

/* Copied into its callers. */
__attribute__((always_inline)) static inline void persist(void *at)
{
	pm_persist(at);
}

/* Flushes the beginning of the pool instead of the word. */
#define SET(pool, word, value) \
	do { \
		(word) = (value); \
		pm_persist(pool); \
	} while (0)

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return 0;
	const char *what = argv[2];
	if (!strcmp(what, "rounds")) {
#pragma GCC unroll 4
		for (int round = 0; round < 4; round++) {
			if (round % 2 == 0) {
				pool->lines[round][0] = 1;
				pm_flush(&pool->lines[round]);
			}
			pm_fence(); /* rounds */
		}
	} else if (!strcmp(what, "inlined")) {
		pool->last = 1;
		persist(&pool->last);
		persist(&pool->last); /* inlined */
	} else if (!strcmp(what, "fence")) {
		pool->last = 1;
		pm_flush(&pool->last);
		pm_persist(&pool->lines[0]); /* fence */
	} else if (!strcmp(what, "macro")) {
		pool->last = 2;
		pm_persist(&pool->last);
		SET(pool, pool->last, 1); /* macro */
	}
	return 0;
}
