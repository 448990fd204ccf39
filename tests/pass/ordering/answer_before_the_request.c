// powerfail: needs = "-pthread"
// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--schedules 20"
// A request is durable before it is signalled.
#include <pthread.h>

#include "../../programs/pm.h"

struct pool {
	uint64_t request;
	uint64_t answer PM_LINE;
};

static volatile struct pool *pool;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t is_there = PTHREAD_COND_INITIALIZER;
static int requests;

static void *first(void *unused)
{
	pool->request = 4;
	pm_persist(&pool->request);
	pthread_mutex_lock(&lock);
	requests = 1;
	pthread_cond_signal(&is_there);
	pthread_mutex_unlock(&lock);
	return unused;
}

static void *second(void *unused)
{
	pthread_mutex_lock(&lock);
	while (requests == 0)
		pthread_cond_wait(&is_there, &lock);
	pthread_mutex_unlock(&lock);
	pool->answer = 2 * pool->request;
	pm_persist(&pool->answer);
	return unused;
}

static int recover(void)
{
	return pool->answer != 0 && pool->answer != 2 * pool->request;
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
