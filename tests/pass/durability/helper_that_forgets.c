// powerfail: recover = "{bin} {pool} recover"
// A helper stores and persists what it stores, for all of its callers.
#include "../../programs/pm.h"

struct pool {
	uint64_t first PM_LINE;
	uint64_t second PM_LINE;
	uint64_t is_complete PM_LINE;
};

static void put_durably(uint64_t *at, uint64_t value)
{
	*at = value;
	pm_persist(at);
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool->is_complete && (pool->first != 1 || pool->second != 2);
	put_durably(&pool->first, 1);
	put_durably(&pool->second, 2);
	pool->is_complete = 1;
	pm_persist(&pool->is_complete);
	return 0;
}
