// powerfail: recover = "{bin} {pool} recover"
// The last flush of the program has a fence. It exits immediately: a lock would be a fence.
#include "../../programs/pm.h"

struct pool {
	uint64_t count;
	uint64_t closed PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool->count > 1;
	pool->count = 1;
	pm_persist(&pool->count);
	pool->closed = 1;
	pm_flush(&pool->closed);
	pm_fence();
	_exit(0);
}
