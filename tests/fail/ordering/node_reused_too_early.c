// powerfail: needs = "-pthread"
// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--schedules 20"
// A thread unlinks a node, and another uses its memory again before that is durable.
#include <pthread.h>

#include "../../programs/pm.h"

struct pool {
	/* The number of the first node. */
	uint64_t head;
	uint64_t nodes[3][8] PM_LINE;
};

static volatile struct pool *pool;

static void *first(void *unused)
{
	pool->head = 2; // lost: PF0201
	pm_persist(&pool->head);
	return unused;
}

/* A node that is not linked can be used for something else. */
static void *second(void *unused)
{
	if (pool->head != 2)
		return unused;
	pool->nodes[1][0] = 99;
	pm_persist(pool->nodes[1]);
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
	for (int number = 1; number <= 2; number++) {
		pool->nodes[number][0] = 7;
		pm_persist(pool->nodes[number]);
	}
	pool->head = 1;
	pm_persist(&pool->head);
	PM_REQUIRE(pthread_create(&threads[0], NULL, first, NULL) == 0);
	PM_REQUIRE(pthread_create(&threads[1], NULL, second, NULL) == 0);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	return 0;
}
