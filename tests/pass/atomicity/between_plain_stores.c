// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--failure-points store"
// Both halves of a pair in one store: there is no moment between them.
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
