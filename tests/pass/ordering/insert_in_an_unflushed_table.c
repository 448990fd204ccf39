// powerfail: needs = "-pthread"
// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--schedules 20"
// The switch to a larger table is durable before the lock is released.
#include <pthread.h>

#include "../../programs/pm.h"

struct pool {
	/* The table in use. */
	uint64_t table;
	uint64_t count PM_LINE;
	uint64_t tables[2][8] PM_LINE;
};

static volatile struct pool *pool;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *first(void *unused)
{
	pthread_mutex_lock(&lock);
	pool->table = 1;
	pm_persist(&pool->table);
	pthread_mutex_unlock(&lock);
	return unused;
}

static void *second(void *unused)
{
	pthread_mutex_lock(&lock);
	uint64_t table = pool->table;
	pthread_mutex_unlock(&lock);
	if (table == 0)
		return unused;
	pool->tables[table][0] = 5;
	pm_persist(pool->tables[table]);
	pool->count = 1;
	pm_persist(&pool->count);
	return unused;
}

static int recover(void)
{
	return pool->count == 1 && pool->tables[pool->table][0] != 5;
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
