// powerfail: recover = "{bin} {pool} recover"
// A helper stores, its callers persist.
#include "../../programs/pm.h"

struct pool {
	uint64_t first PM_LINE;
	uint64_t second PM_LINE;
	uint64_t third PM_LINE;
};

static void put_u64(uint64_t *at, uint64_t value)
{
	*at = value;
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool->third && (pool->first != 1 || pool->second != 2);
	put_u64(&pool->first, 1);
	pm_persist(&pool->first);
	put_u64(&pool->second, 2);
	pm_persist(&pool->second);
	put_u64(&pool->third, 3);
	pm_persist(&pool->third);
	return 0;
}
