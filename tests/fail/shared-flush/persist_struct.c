// powerfail: needs = "-lpmem"
// powerfail: flags = "--deny warnings"
// pmem_persist of a whole struct.
#include <libpmem.h>

#include "../../programs/pm.h"

struct point {
	uint64_t x, y;
};

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	struct point *point = pm_open(argv[1], 4096);
	point->x = 3; // expect: PF0601@point
	point->y = 4; // expect: PF0601@point
	pmem_persist(point, sizeof(*point)); // expect: PF0601@point
	return 0;
}
