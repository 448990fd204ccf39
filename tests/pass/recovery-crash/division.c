// powerfail: recover = "{bin} {pool} recover"
// The width by which recovery divides is durable before the number of cells.
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
	pool->width = 4;
	pm_persist(&pool->width);
	pool->cells = 12;
	pm_persist(&pool->cells);
	return 0;
}
