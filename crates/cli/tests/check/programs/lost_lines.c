// Bugs that only lost and reordered lines show, selected with -DBUG=N. By default there is none.
//
//  1  flag and data are flushed under one fence: the flag can survive without the data
//  2  recovery makes the same mistake in its repair: it takes a second power failure
//  3  recovery reads both and accepts either: not robust, but no failure
//  4  the hint can survive without the data, and only a recovery that was interrupted before rejects that
#include "../../../../../tests/programs/pm.h"

#ifndef BUG
#define BUG 0
#endif

enum { PENDING = 1, DONE = 2 };

struct pool {
	uint64_t log PM_LINE;
	uint64_t data PM_LINE;
	uint64_t state PM_LINE;
	uint64_t hint PM_LINE;
	uint64_t recoveries PM_LINE;
};

static int recover(struct pool *pool)
{
	if (pool->state == DONE && pool->data != pool->log)
		return 1;
	if (pool->state == PENDING) {
		pool->data = pool->log;
#if BUG != 2
		pm_persist(&pool->data);
#endif
		pool->state = DONE;
		pm_flush(&pool->data);
		pm_flush(&pool->state);
		pm_fence();
	}
#if BUG == 3
	if (pool->hint == 9 && pool->log != 7)
		puts("a hint without a log");
#endif
#if BUG == 4
	if (pool->recoveries != 0 && pool->hint == 9 && pool->log != 7)
		return 1;
	pool->recoveries = 1;
	pm_persist(&pool->recoveries);
	pool->log = 3 + 4;
	pm_persist(&pool->log);
	pool->recoveries = 0;
	pm_persist(&pool->recoveries);
#endif
	return 0;
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return recover(pool);
	pool->log = 7;
#if BUG == 3 || BUG == 4
	pool->hint = 9;
	pm_flush(&pool->hint);
#endif
	pm_persist(&pool->log);
	pool->state = PENDING;
	pm_persist(&pool->state);
	pool->data = 7;
#if BUG == 1
	pool->state = DONE;
	pm_flush(&pool->data);
	pm_persist(&pool->state);
#else
	pm_persist(&pool->data);
	pool->state = DONE;
	pm_persist(&pool->state);
#endif
	return 0;
}
