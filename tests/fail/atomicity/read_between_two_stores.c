// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--races"
// Recovery reads two words that are changed one after the other. That both are read before they are durable is not another
// bug: no flush would help.
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
	pool->ranges[0].first += by; // expect: PF0301@range
	pool->ranges[0].last += by; // expect: PF0301@range
	pm_persist(&pool->ranges[0]);
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
