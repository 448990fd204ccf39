// powerfail: needs = "-lpmem"
// powerfail: recover = "{bin} {pool} recover"
// powerfail: dump = "{bin} {pool} dump"
// powerfail: ack = "^ok"
// Two values are swapped by one store, to a number that says whether they are swapped. Neither value ever
// exists twice.
#include <libpmem.h>

#include "../../programs/pm.h"

struct pool {
	uint64_t swapped;
	uint64_t first PM_LINE;
	uint64_t second PM_LINE;
};

static void set(uint64_t *at, uint64_t value)
{
	*at = value;
	pmem_persist(at, sizeof(*at));
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool->swapped > 1;
	if (pm_mode(argc, argv, "dump")) {
		uint64_t values[2] = {pool->first, pool->second};
		printf("%lu %lu\n", values[pool->swapped], values[!pool->swapped]);
		return 0;
	}
	set(&pool->first, 1);
	pm_acknowledge(1);
	set(&pool->second, 2);
	pm_acknowledge(2);
	for (uint64_t i = 3; i <= 5; i++) {
		set(&pool->swapped, !pool->swapped);
		pm_acknowledge(i);
	}
	return 0;
}
