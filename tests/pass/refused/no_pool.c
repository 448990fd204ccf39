// Maps its pool, stores to it and persists the store.
#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	uint64_t *pool = pm_open(argv[1], 4096);
	PM_REQUIRE(pool);
	pool[0] = (uint64_t)argv[1][0];
	pm_persist(&pool[0]);
	return pool[0] == 0;
}
