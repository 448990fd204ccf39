// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// An undo log whose valid bit has inverted values: recovery rolls back when the update is complete, but not
// while it is in progress.
#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

struct pool {
	uint64_t is_valid;
	struct {
		uint64_t index;
		uint64_t value;
	} backup PM_LINE;
	uint64_t array[8] PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	powerfail_commit_range(&pool->is_valid, sizeof(pool->is_valid), &pool->backup, sizeof(pool->backup));
	if (pm_mode(argc, argv, "recover")) {
		if (pool->is_valid) {
			uint64_t *at = &pool->array[pool->backup.index];
			*at = pool->backup.value;
			pm_persist(at);
		}
		return 0;
	}
	pool->backup.index = 3; // expect: PF0702@record
	pool->backup.value = pool->array[3]; // expect: PF0702@record
	pm_persist(&pool->backup);
	pool->is_valid = 0;
	pm_persist(&pool->is_valid);
	pool->array[3] = 33;
	pm_persist(&pool->array[3]);
	pool->is_valid = 1;
	pm_persist(&pool->is_valid);
	return 0;
}
