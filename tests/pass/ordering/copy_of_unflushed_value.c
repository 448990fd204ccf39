// powerfail: needs = "-pthread"
// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--schedules 20"
// A value is durable before another thread can read it.
#include <pthread.h>

#include "../../programs/pm.h"

struct pool {
	uint64_t balance;
	uint64_t statement PM_LINE;
};

static volatile struct pool *pool;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *first(void *unused)
{
	pthread_mutex_lock(&lock);
	pool->balance = 100;
	pm_persist(&pool->balance);
	pthread_mutex_unlock(&lock);
	return unused;
}

static void *second(void *unused)
{
	pthread_mutex_lock(&lock);
	uint64_t balance = pool->balance;
	pthread_mutex_unlock(&lock);
	if (balance == 0)
		return unused;
	pool->statement = balance;
	pm_persist(&pool->statement);
	return unused;
}

static int recover(void)
{
	return pool->statement != 0 && pool->statement != pool->balance;
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
