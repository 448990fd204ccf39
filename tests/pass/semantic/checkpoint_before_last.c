// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// Checkpoints rotate through three slots. Recovery uses the last one.
#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

enum { PLACES = 3 };

struct pool {
	uint64_t newest;
	struct {
		uint64_t value;
	} PM_LINE places[PLACES];
	uint64_t value PM_LINE;
};

static void set(uint64_t *at, uint64_t value)
{
	*at = value;
	pm_persist(at);
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	powerfail_commit_range(&pool->newest, sizeof(pool->newest), pool->places, sizeof(pool->places));
	if (pm_mode(argc, argv, "recover")) {
		uint64_t newest = pool->newest;
		if (newest)
			set(&pool->value, pool->places[newest % PLACES].value);
		return 0;
	}
	for (uint64_t i = 1; i <= 4; i++) {
		pool->places[i % PLACES].value = 10 * i;
		pm_persist(&pool->places[i % PLACES]);
		set(&pool->newest, i);
	}
	return 0;
}
