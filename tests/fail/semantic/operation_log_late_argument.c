// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// An operation is pending before its second argument is in the log. Recovery repeats it with the old argument.
#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

struct pool {
	uint64_t is_pending;
	struct {
		uint64_t value;
		uint64_t slot PM_LINE;
	} log PM_LINE;
	uint64_t slots[4] PM_LINE;
};

static void fill(struct pool *pool, uint64_t value, uint64_t slot)
{
	pool->slots[slot] = value;
	pm_persist(pool->slots);
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	powerfail_commit_range(&pool->is_pending, sizeof(pool->is_pending), &pool->log, sizeof(pool->log));
	if (pm_mode(argc, argv, "recover")) {
		if (pool->is_pending)
			fill(pool, pool->log.value, pool->log.slot);
		return 0;
	}
	pool->log.value = 17;
	pm_persist(&pool->log.value);
	pool->is_pending = 1;
	pm_persist(&pool->is_pending);
	pool->log.slot = 2; // expect: PF0702
	pm_persist(&pool->log.slot);
	fill(pool, 17, 2);
	pool->is_pending = 0;
	pm_persist(&pool->is_pending);
	return 0;
}
