// powerfail: recover = "{bin} {pool} recover"
// The count of undo log entries can become durable before the entry: one fence for both.
#include "../../programs/pm.h"

struct entry {
	uint64_t slot;
	uint64_t old;
};

struct pool {
	uint64_t count;
	struct entry log[4] PM_LINE;
	uint64_t balances[4] PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		if (pool->balances[0] == 0)
			return 0;
		for (uint64_t i = pool->count; i > 0; i--)
			pool->balances[pool->log[i - 1].slot] = pool->log[i - 1].old;
		pm_persist(pool->balances);
		pool->count = 0;
		pm_persist(&pool->count);
		if (pool->balances[1] != 20 && pool->balances[1] != 30)
			return 1;
		return pool->balances[0] != 50;
	}
	pool->balances[1] = 20;
	pool->balances[0] = 50;
	pm_persist(pool->balances);
	pool->log[0].slot = 1; // lost: PF0201@entry
	pool->log[0].old = pool->balances[1]; // lost: PF0201@entry
	pm_flush(pool->log);
	pool->count = 1;
	pm_flush(&pool->count);
	pm_fence();
	pool->balances[1] = 30;
	pm_persist(pool->balances);
	pool->count = 0;
	pm_persist(&pool->count);
	return 0;
}
