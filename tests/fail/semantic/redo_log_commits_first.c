// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// A redo log is committed before its entry is written.
#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

struct pool {
	uint64_t is_committed;
	uint64_t entry PM_LINE;
	uint64_t home PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	powerfail_commit_range(&pool->is_committed, sizeof(pool->is_committed), &pool->entry,
			       sizeof(pool->entry));
	if (pm_mode(argc, argv, "recover")) {
		if (pool->is_committed) {
			pool->home = pool->entry;
			pm_persist(&pool->home);
			pool->is_committed = 0;
			pm_persist(&pool->is_committed);
		}
		return 0;
	}
	pool->is_committed = 1;
	pm_persist(&pool->is_committed);
	pool->entry = 12; // expect: PF0702
	pm_persist(&pool->entry);
	pool->home = 12;
	pm_persist(&pool->home);
	pool->is_committed = 0;
	pm_persist(&pool->is_committed);
	return 0;
}
