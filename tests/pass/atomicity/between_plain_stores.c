// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--failure-points store"
// Two stores to one line with one flush: the crash between them is neither at a flush nor at a fence.
#include "../../programs/pm.h"

struct pool {
	uint32_t low;
	uint32_t high;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool->low != pool->high;
	for (uint32_t i = 1; i <= 3; i++) {
		*(uint64_t *)pool = (uint64_t)i << 32 | i;
		pm_persist(pool);
	}
	return 0;
}
