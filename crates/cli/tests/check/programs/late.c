/*
 * Two threads increment a counter five times each. The second thread does something else first. If the
 * threads interfere anyway, the workload itself notices. No crash state is wrong.
 */
#include <pthread.h>
#include <time.h>

#include "../../../../../tests/programs/pm.h"

static uint64_t *counter;

static void *count(void *is_second)
{
	struct timespec used = { 0, 0 };
	while (is_second && used.tv_sec == 0 && used.tv_nsec < 4000000)
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	for (int i = 0; i < 5; i++) {
		uint64_t now = *(volatile uint64_t *)counter;
		*(volatile uint64_t *)counter = now + 1;
		pm_persist(counter);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[2];
	counter = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return 0;
	PM_REQUIRE(pthread_create(&threads[0], NULL, count, NULL) == 0);
	PM_REQUIRE(pthread_create(&threads[1], NULL, count, counter) == 0);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	return *counter != 10;
}
