// powerfail: needs = "-pthread"
// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--schedules 10"
// The first thread makes its value durable before the second one begins, and main flushes it once more, in each order of threads.
#include <pthread.h>

#include "../../programs/pm.h"

struct pool {
	uint64_t value;
	uint64_t copy PM_LINE;
};

static struct pool *pool;

static void *first(void *unused)
{
	__atomic_store_n(&pool->value, 5, __ATOMIC_RELEASE);
	pm_persist(&pool->value);
	return unused;
}

static void *second(void *unused)
{
	uint64_t value = __atomic_load_n(&pool->value, __ATOMIC_ACQUIRE);
	if (value) {
		pool->copy = value;
		pm_persist(&pool->copy);
	}
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t threads[2];
	pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool->copy && pool->copy != pool->value;
	PM_REQUIRE(pthread_create(&threads[0], NULL, first, NULL) == 0);
	pthread_join(threads[0], NULL);
	PM_REQUIRE(pthread_create(&threads[1], NULL, second, NULL) == 0);
	pthread_join(threads[1], NULL);
	pm_persist(&pool->value); // expect: PF0501
	return 0;
}
