// powerfail: needs = "-pthread"
// powerfail: recover = "{bin} {pool} recover"
// Two threads have one line each; the second one does not flush its last value.
#include <pthread.h>

#include "../../programs/pm.h"

struct slot {
	uint64_t value;
} PM_LINE;

static struct slot *slots;

static void *first(void *unused)
{
	slots[0].value = 1;
	pm_persist(&slots[0]);
	return unused;
}

static void *second(void *unused)
{
	slots[1].value = 1;
	pm_persist(&slots[1]);
	slots[1].value = 2; // expect: PF0101
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t threads[2];
	slots = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return slots[0].value > 1;
	PM_REQUIRE(pthread_create(&threads[0], NULL, first, NULL) == 0);
	PM_REQUIRE(pthread_create(&threads[1], NULL, second, NULL) == 0);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	return 0;
}
