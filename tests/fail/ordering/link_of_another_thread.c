// powerfail: needs = "-pthread"
// powerfail: recover = "{bin} {pool} recover"
// One thread appends to a list and makes that durable later. Another thread finds the element, appends after
// it, and assumes that its own element is durable: the link before it is not.
#include <pthread.h>
#include <semaphore.h>

#include "../../programs/pm.h"

struct node {
	uint64_t value;
	/* The number of the next node; zero ends the list. */
	uint64_t next;
} PM_LINE;

struct pool {
	/* The number that the second thread has acknowledged. */
	uint64_t appended;
	struct node nodes[4];
};

static struct pool *pool;
static sem_t visible, done;

static void *append_first(void *unused)
{
	pool->nodes[1].value = 11;
	pm_persist(&pool->nodes[1]);
	pool->nodes[0].next = 1; // lost: PF0201
	sem_post(&visible);
	sem_wait(&done);
	pm_persist(&pool->nodes[0]);
	return unused;
}

static void *append_second(void *unused)
{
	sem_wait(&visible);
	uint64_t last = 0;
	while (pool->nodes[last].next)
		last = pool->nodes[last].next;
	pool->nodes[2].value = 12;
	pm_persist(&pool->nodes[2]);
	pool->nodes[last].next = 2;
	pm_persist(&pool->nodes[last]);
	pool->appended = 1;
	pm_persist(&pool->appended);
	sem_post(&done);
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t threads[2];
	pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		uint64_t at = pool->nodes[0].next;
		while (at && pool->nodes[at].value != 12)
			at = pool->nodes[at].next;
		return pool->appended && !at;
	}
	sem_init(&visible, 0, 0);
	sem_init(&done, 0, 0);
	PM_REQUIRE(pthread_create(&threads[0], NULL, append_first, NULL) == 0);
	PM_REQUIRE(pthread_create(&threads[1], NULL, append_second, NULL) == 0);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	return 0;
}
