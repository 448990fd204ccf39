// powerfail: needs = "-pthread"
// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--schedules 20"
// A thread begins an epoch without the lock, and another stamps a record with it before it is durable.
#include <pthread.h>

#include "../../programs/pm.h"

struct pool {
	uint64_t epoch;
	struct {
		uint64_t value;
		uint64_t epoch;
	} record PM_LINE;
};

static volatile struct pool *pool;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

static void *first(void *unused)
{
	pool->epoch = 1; // lost: PF0201
	pm_persist(&pool->epoch);
	return unused;
}

static void *second(void *unused)
{
	pthread_rwlock_rdlock(&lock);
	uint64_t epoch = pool->epoch;
	if (epoch != 0) {
		pool->record.value = 3;
		pool->record.epoch = epoch;
		pm_persist(&pool->record);
	}
	pthread_rwlock_unlock(&lock);
	return unused;
}

static int recover(void)
{
	return pool->record.epoch > pool->epoch;
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
