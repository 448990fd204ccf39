// powerfail: needs = "-pthread"
// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--schedules 20"
// A thread allocates two slots, and another fills the second one before the allocation is durable.
#include <pthread.h>

#include "../../programs/pm.h"

struct pool {
	uint64_t used;
	uint64_t slots[4][8] PM_LINE;
};

static volatile struct pool *pool;

static void *first(void *unused)
{
	pool->used = 2; // lost: PF0201
	pm_persist(&pool->used);
	pool->slots[0][0] = 20;
	pm_persist(pool->slots[0]);
	return unused;
}

static void *second(void *unused)
{
	uint64_t used = pool->used;
	if (used == 0)
		return unused;
	pool->slots[used - 1][0] = 21;
	pm_persist(pool->slots[used - 1]);
	return unused;
}

static int recover(void)
{
	for (uint64_t slot = pool->used; slot < 4; slot++)
		if (pool->slots[slot][0] != 0)
			return 1;
	return 0;
}

int main(int argc, char **argv)
{
	pthread_t threads[2];
	pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return recover();
	PM_REQUIRE(pthread_create(&threads[0], NULL, first, NULL) == 0);
	PM_REQUIRE(pthread_create(&threads[1], NULL, second, NULL) == 0);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	return 0;
}
