// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// A backup and its valid bit share a fence: until it completes they race, and after it nothing shows that the
// backup was durable first.
#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

struct pool {
	uint64_t is_valid;
	uint64_t backup PM_LINE;
	uint64_t value PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	powerfail_commit_range(&pool->is_valid, sizeof(pool->is_valid), &pool->backup, sizeof(pool->backup));
	if (pm_mode(argc, argv, "recover")) {
		if (pool->is_valid) {
			pool->value = pool->backup;
			pm_persist(&pool->value);
		}
		return 0;
	}
	pool->backup = 4; // expect: PF0702 // warning: PF0701
	pm_flush(&pool->backup);
	pool->is_valid = 1;
	pm_flush(&pool->is_valid);
	pm_fence();
	pool->value = 5;
	pm_persist(&pool->value);
	pool->is_valid = 0;
	pm_persist(&pool->is_valid);
	return 0;
}
