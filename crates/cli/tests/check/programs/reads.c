/*
 * The first thread stores two values, the second later than the first. The second thread reads them in the same order,
 * with nothing between the two reads: only a switch of threads there shows it the second value without the first. Then
 * the workload itself fails. No crash state is wrong.
 */
#include <pthread.h>

#include "../../../../../tests/programs/pm.h"

struct pool {
	uint64_t first;
	uint64_t second PM_LINE;
};

static volatile struct pool *pool;
static int is_wrong;

static void *store(void *unused)
{
	pool->first = 1;
	pm_persist(&pool->first);
	pool->second = 1;
	pm_persist(&pool->second);
	return unused;
}

static void *read_both(void *unused)
{
	uint64_t first = pool->first;
	uint64_t second = pool->second;
	is_wrong = second > first;
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t threads[2];
	pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return 0;
	PM_REQUIRE(pthread_create(&threads[0], NULL, store, NULL) == 0);
	PM_REQUIRE(pthread_create(&threads[1], NULL, read_both, NULL) == 0);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	return is_wrong;
}
