// powerfail: needs = "-pthread"
// powerfail: recover = "{bin} {pool} recover"
// Two threads take turns: one writes requests, the other answers them. Recovery accepts one request without
// an answer.
#include <pthread.h>
#include <semaphore.h>

#include "../../programs/pm.h"

struct pool {
	uint64_t requests;
	uint64_t answers PM_LINE;
};

static struct pool *pool;
static sem_t asked, answered;

static void *answer(void *unused)
{
	for (uint64_t i = 1; i <= 3; i++) {
		sem_wait(&asked);
		pool->answers = i;
		pm_persist(&pool->answers);
		sem_post(&answered);
	}
	return unused;
}

static void *ask(void *unused)
{
	for (uint64_t i = 1; i <= 3; i++) {
		pool->requests = i;
		pm_persist(&pool->requests);
		sem_post(&asked);
		sem_wait(&answered);
	}
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t threads[2];
	pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool->requests - pool->answers > 1;
	sem_init(&asked, 0, 0);
	sem_init(&answered, 0, 0);
	PM_REQUIRE(pthread_create(&threads[0], NULL, ask, NULL) == 0);
	PM_REQUIRE(pthread_create(&threads[1], NULL, answer, NULL) == 0);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	return 0;
}
