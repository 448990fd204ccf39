// powerfail: recover = "{bin} {pool} recover"
// powerfail: checker = "{bin} {pool} check"
// Two numbers are swapped in two steps, which recovery completes; the checker wants each of them once.
#include "../../programs/pm.h"

struct pool {
	uint64_t first;
	uint64_t second PM_LINE;
	uint64_t swapped PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		if (pool->swapped && pool->first == 2) {
			pool->second = 1;
			pm_persist(&pool->second);
		}
		return 0;
	}
	if (pm_mode(argc, argv, "check"))
		return pool->first == pool->second && pool->first != 0;
	pool->second = 2;
	pm_persist(&pool->second);
	pool->first = 1;
	pm_persist(&pool->first);
	pool->swapped = 1;
	pm_persist(&pool->swapped);
	pool->first = 2;
	pm_persist(&pool->first);
	pool->second = 1;
	pm_persist(&pool->second);
	return 0;
}
