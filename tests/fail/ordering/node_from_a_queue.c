// powerfail: needs = "-pthread"
// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--schedules 20"
// A thread queues a node in volatile memory before the node is durable. Another thread takes it and links it.
#include <pthread.h>

#include "../../programs/pm.h"

struct pool {
	uint64_t head;
	uint64_t nodes[4][8] PM_LINE;
};

static struct pool *pool;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t queued;

static void *first(void *unused)
{
	pool->nodes[1][0] = 7; // lost: PF0201
	pthread_mutex_lock(&lock);
	queued = 1;
	pthread_mutex_unlock(&lock);
	pm_persist(pool->nodes[1]);
	return unused;
}

static void *second(void *unused)
{
	pthread_mutex_lock(&lock);
	uint64_t number = queued;
	pthread_mutex_unlock(&lock);
	if (number == 0)
		return unused;
	pool->head = number;
	pm_persist(&pool->head);
	return unused;
}

static int recover(void)
{
	return pool->head != 0 && pool->nodes[pool->head][0] != 7;
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
