// powerfail: needs = "-lpmem"
// powerfail: flags = "--deny warnings"
// pmem_persist of each field of a struct.
#include <libpmem.h>

#include "../../programs/pm.h"

struct point {
	uint64_t x, y;
};

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	struct point *point = pm_open(argv[1], 4096);
	point->x = 3;
	pmem_persist(&point->x, sizeof(point->x));
	point->y = 4;
	pmem_persist(&point->y, sizeof(point->y));
	return 0;
}
