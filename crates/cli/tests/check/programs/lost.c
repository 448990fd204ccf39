// Records in a log, and their count, on separate lines. Recovery reads that many records, and all stores are
// in the right order: only a lost line shows the bug.
//
// Planted by -DBUG=...: 0 none, 1 the flush of a record is missing, 2 the fence after it is missing, 3 the
// record is flushed after the count, 4 two counts that must be equal become durable in any order.
#include "../../../../../tests/programs/pm.h"

#include <signal.h>

#define RECORDS 4

struct record {
	uint64_t value;
	uint64_t check;
} PM_LINE;

struct pool {
	uint64_t count;
	uint64_t copy PM_LINE;
	struct record records[RECORDS];
};

static int recover(struct pool *pool)
{
	for (uint64_t i = 0; i < pool->count; i++)
		if (pool->records[i].value != 100 + i || pool->records[i].check != ~(100 + i))
			return 1;
#if BUG == 4
	if (pool->copy != pool->count)
		return 1;
#endif
	return 0;
}

static void append(struct pool *pool, uint64_t i)
{
	struct record *record = &pool->records[i];
	record->value = 100 + i; // the first store
	record->check = ~(100 + i); // the second store
#if BUG != 1 && BUG != 3
	pm_flush(record); // the flush
#endif
#if BUG != 1 && BUG != 2 && BUG != 3
	pm_fence();
#endif
	pool->count = i + 1; // the count
#if BUG == 4
	pool->copy = i + 1; // the copy
	pm_flush(&pool->copy);
#endif
	pm_persist(&pool->count);
#if BUG == 3
	pm_persist(record); // the late flush
#endif
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return recover(pool);
	if (pm_mode(argc, argv, "slow")) {
		usleep(100000);
		return recover(pool);
	}
	if (pm_mode(argc, argv, "kill-parent")) {
		// A process that is forked from a snapshot has it as its parent.
		if (pool->count == 3 && getppid() != 1)
			kill(getppid(), SIGKILL);
		return recover(pool);
	}
	for (uint64_t i = 0; i < RECORDS; i++)
		append(pool, i);
	return 0;
}
