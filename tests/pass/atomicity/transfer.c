// powerfail: needs = "-lpmem"
// powerfail: recover = "{bin} {pool} recover"
// Money leaves one account and reaches another one. The program notes the balances first.
#include <libpmem.h>

#include "../../programs/pm.h"

struct pool {
	uint64_t ready;
	uint64_t from PM_LINE;
	uint64_t to PM_LINE;
	uint64_t noted PM_LINE;
	uint64_t old_from;
	uint64_t old_to;
};

static void set(uint64_t *at, uint64_t value)
{
	pmem_memcpy_persist(at, &value, sizeof(value));
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		if (!pool->ready)
			return 0;
		if (pool->noted) {
			set(&pool->from, pool->old_from);
			set(&pool->to, pool->old_to);
			set(&pool->noted, 0);
		}
		return pool->from + pool->to != 1000;
	}
	set(&pool->from, 1000);
	set(&pool->ready, 1);
	for (uint64_t i = 1; i <= 3; i++) {
		set(&pool->old_from, pool->from);
		set(&pool->old_to, pool->to);
		set(&pool->noted, 1);
		set(&pool->from, 1000 - 100 * i);
		set(&pool->to, 100 * i);
		set(&pool->noted, 0);
	}
	return 0;
}
