// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--races"
// The words are changed in a copy, which one store makes the current one. Recovery reads that store, and both of its values
// are right.
#include "../../programs/pm.h"

struct range {
	uint64_t first;
	uint64_t last;
};

struct pool {
	struct range ranges[2] PM_LINE;
	uint64_t current PM_LINE;
};

static void move(struct pool *pool, uint64_t by)
{
	uint64_t other = !pool->current;
	struct range *from = &pool->ranges[pool->current], *to = &pool->ranges[other];
	to->first = from->first + by;
	to->last = from->last + by;
	pm_persist(to);
	pool->current = other; // warning: PF0701
	pm_persist(&pool->current);
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		struct range *range = &pool->ranges[pool->current];
		return range->last - range->first != 0;
	}
	move(pool, 5);
	move(pool, 7);
	return 0;
}
