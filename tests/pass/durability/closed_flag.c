// powerfail: recover = "{bin} {pool} recover"
// A pool is marked as closed without a flush: recovery counts the entries if the mark is lost.
#include "../../programs/pm.h"

struct pool {
	uint64_t entries[4];
	uint64_t count PM_LINE;
	uint64_t closed PM_LINE;
};

static void count_entries(struct pool *pool)
{
	uint64_t count = 0;
	while (count < 4 && pool->entries[count])
		count++;
	pool->count = count;
	pm_persist(&pool->count);
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		if (pool->closed != 1)
			count_entries(pool);
		return pool->entries[0] > 1 || pool->entries[1] > 2;
	}
	pool->closed = 2;
	pm_persist(&pool->closed);
	for (uint64_t i = 0; i < 2; i++) {
		pool->entries[i] = i + 1;
		pm_persist(&pool->entries[i]);
	}
	count_entries(pool);
	pool->closed = 1; // warning: PF0101
	return 0;
}
