// powerfail: needs = "-pthread"
// Threads register themselves in a table outside of the pool, because only this run reads it.
#include <pthread.h>

#include "../../programs/pm.h"

struct slot {
	uint64_t value;
	uint64_t thread PM_LINE;
} PM_LINE;

static struct slot *slots;
static uint64_t threads_seen[2];

static void *work(void *argument)
{
	uint64_t number = (uint64_t)(uintptr_t)argument;
	threads_seen[number] = number + 1;
	slots[number].value = 10 + number;
	pm_persist(&slots[number].value);
	return NULL;
}

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	pthread_t threads[2];
	slots = pm_open(argv[1], 4096);
	for (uintptr_t i = 0; i < 2; i++)
		PM_REQUIRE(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	return threads_seen[0] + threads_seen[1] != 3;
}
