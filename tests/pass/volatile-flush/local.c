// A stack variable is copied into the pool, and only the pool is flushed.
#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	uint64_t *pool = pm_open(argv[1], 4096);
	uint64_t value = 5;
	pool[0] = value;
	pm_persist(&pool[0]);
	return 0;
}
