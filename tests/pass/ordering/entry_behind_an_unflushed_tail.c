// powerfail: needs = "-pthread"
// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--schedules 20"
// The tail of a log is durable before another thread can append behind it.
#include <pthread.h>

#include "../../programs/pm.h"

struct pool {
	uint64_t tail;
	uint64_t entries[4][8] PM_LINE;
};

static struct pool *pool;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *first(void *unused)
{
	pool->entries[0][0] = 11;
	pm_persist(pool->entries[0]);
	uint64_t empty = 0;
	pthread_mutex_lock(&lock);
	__atomic_compare_exchange_n(&pool->tail, &empty, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	pm_persist(&pool->tail);
	pthread_mutex_unlock(&lock);
	return unused;
}

static void *second(void *unused)
{
	pthread_mutex_lock(&lock);
	uint64_t tail = __atomic_load_n(&pool->tail, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&lock);
	if (tail == 0)
		return unused;
	pool->entries[tail][0] = 12;
	pm_persist(pool->entries[tail]);
	return unused;
}

static int recover(void)
{
	return pool->entries[1][0] != 0 && pool->tail == 0;
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
