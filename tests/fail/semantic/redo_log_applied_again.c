// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// The number of a redo log is odd while it must be applied. Recovery applies it with any number.
#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

struct pool {
	uint64_t number;
	uint64_t slot PM_LINE;
	uint64_t value;
	uint64_t home[4] PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	powerfail_commit_range(&pool->number, sizeof(pool->number), &pool->slot, 16);
	if (pm_mode(argc, argv, "recover")) {
		if (pool->number) {
			uint64_t slot = pool->slot;
			pool->home[slot] = pool->value;
			pm_persist(&pool->home[slot]);
		}
		return 0;
	}
	for (uint64_t i = 0; i < 2; i++) {
		pool->slot = i; // expect: PF0702@record // warning: PF0701@record
		pool->value = 50 + i; // expect: PF0702@record // warning: PF0701@record
		pm_persist(&pool->slot);
		pool->number = 2 * i + 1;
		pm_persist(&pool->number);
		pool->home[i] = 50 + i;
		pm_persist(&pool->home[i]);
		pool->number = 2 * i + 2;
		pm_persist(&pool->number);
	}
	return 0;
}
