// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// A record is flushed before its last store.
#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

struct pool {
	uint64_t is_valid;
	uint64_t name PM_LINE;
	uint64_t age;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	powerfail_commit_range(&pool->is_valid, sizeof(pool->is_valid), &pool->name, 16);
	if (pm_mode(argc, argv, "recover")) {
		if (!pool->is_valid)
			return 0;
		return pool->name != 77 || pool->age != 42;
	}
	pool->name = 77;
	pm_flush(&pool->name);
	pool->age = 42; // expect: PF0701
	pm_fence();
	pool->is_valid = 1;
	pm_persist(&pool->is_valid);
	pm_persist(&pool->age);
	return 0;
}
