// powerfail: needs = "-pthread"
// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--schedules 20"
// A thread applies a log and tells another one before that is durable, which cuts the log.
#include <pthread.h>
#include <semaphore.h>

#include "../../programs/pm.h"

struct pool {
	/* Whether the log has something that is not applied. */
	uint64_t is_begun;
	uint64_t is_applied PM_LINE;
	uint64_t log_len PM_LINE;
};

static volatile struct pool *pool;
static sem_t applied;

static void *first(void *unused)
{
	pool->log_len = 8;
	pm_persist(&pool->log_len);
	pool->is_begun = 1;
	pm_persist(&pool->is_begun);
	pool->is_applied = 1; // lost: PF0201
	sem_post(&applied);
	pm_persist(&pool->is_applied);
	return unused;
}

static void *second(void *unused)
{
	sem_wait(&applied);
	pool->log_len = 0;
	pm_persist(&pool->log_len);
	return unused;
}

static int recover(void)
{
	return pool->is_begun && !pool->is_applied && pool->log_len == 0;
}

int main(int argc, char **argv)
{
	pthread_t threads[2];
	pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return recover();
	sem_init(&applied, 0, 0);
	PM_REQUIRE(pthread_create(&threads[0], NULL, first, NULL) == 0);
	PM_REQUIRE(pthread_create(&threads[1], NULL, second, NULL) == 0);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	return 0;
}
