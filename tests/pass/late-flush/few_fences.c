// powerfail: flags = "--deny warnings --only late-flush,durability,redundant-flush --dirty-fences 3"
// A value is flushed after two others.
#include "../../programs/pm.h"

struct pool {
	uint64_t first;
	PM_LINE uint64_t others[3][8];
};

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	struct pool *pool = pm_open(argv[1], 4096);
	pool->first = 1;
	pool->others[0][0] = 2;
	pm_persist(pool->others[0]);
	pool->others[1][0] = 3;
	pm_persist(pool->others[1]);
	pm_persist(&pool->first);
	pool->others[2][0] = 4;
	pm_persist(pool->others[2]);
	return 0;
}
