// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// powerfail: checker = "{bin} {pool} check"
// The counted values, which only the checker reads, are durable before the count.
#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

struct pool {
	uint64_t count;
	uint64_t opened PM_LINE;
	uint64_t value PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	powerfail_commit_range(&pool->count, sizeof(pool->count), &pool->value, sizeof(pool->value));
	if (pm_mode(argc, argv, "recover")) {
		pool->opened = pool->count + 1;
		pm_persist(&pool->opened);
		return 0;
	}
	if (pm_mode(argc, argv, "check"))
		return pool->opened > 1 && pool->value != 6;
	pool->value = 6;
	pm_persist(&pool->value);
	pool->count = 1;
	pm_persist(&pool->count);
	return 0;
}
