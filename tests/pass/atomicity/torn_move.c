// powerfail: recover = "{bin} {pool} recover"
// powerfail: dump = "{bin} {pool} dump"
// powerfail: ack = "^ok"
// An item moves from one shelf to another: the program stores the number of its shelf, so it is never
// visible twice.
#include "../../programs/pm.h"

struct pool {
	uint64_t shelves[2][8] PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return 0;
	if (pm_mode(argc, argv, "dump")) {
		printf("%lu %lu\n", pool->shelves[0][0], pool->shelves[1][0]);
		return 0;
	}
	pool->shelves[0][0] = 1;
	pm_persist(&pool->shelves[0]);
	pm_acknowledge(1);
	for (uint64_t i = 2; i <= 5; i++) {
		pool->shelves[0][0] = 1 + i % 2;
		pm_persist(&pool->shelves[0]);
		pm_acknowledge(i);
	}
	return 0;
}
