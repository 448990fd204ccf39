// powerfail: recover = "{bin} {pool} recover"
// The number of rows is durable before the width by which recovery divides.
#include "../../programs/pm.h"

struct pool {
	uint64_t cells;
	uint64_t width PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool->cells ? pool->cells / pool->width > 12 : 0;
	pool->cells = 12; // expect: PF0401
	pm_persist(&pool->cells);
	pool->width = 4;
	pm_persist(&pool->width);
	return 0;
}
