// powerfail: needs = "-pthread"
// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--schedules 20"
// An allocation of two slots is durable before another thread can fill the second one.
#include <pthread.h>

#include "../../programs/pm.h"

struct pool {
	uint64_t used;
	uint64_t slots[4][8] PM_LINE;
};

static volatile struct pool *pool;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *first(void *unused)
{
	pthread_mutex_lock(&lock);
	pool->used = 2;
	pm_persist(&pool->used);
	pthread_mutex_unlock(&lock);
	pool->slots[0][0] = 20;
	pm_persist(pool->slots[0]);
	return unused;
}

static void *second(void *unused)
{
	pthread_mutex_lock(&lock);
	uint64_t used = pool->used;
	pthread_mutex_unlock(&lock);
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
