/*
 * One bug with several outcomes: what recovery does depends on how far the program went on. In the mode `order` a store
 * comes too early, in the mode `loss` a record is made valid before it is durable.
 */
#include "../../../../../tests/programs/pm.h"

struct pool {
	uint64_t begun;
	uint64_t ended PM_LINE;
	uint64_t valid PM_LINE;
	uint64_t steps PM_LINE;
	uint64_t record PM_LINE;
};

static int fail(uint64_t steps)
{
	if (steps == 0)
		abort();
	if (steps == 1)
		return *(volatile int *)(uintptr_t)(steps - 1);
	return steps == 2 ? 1 : 2;
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	uint64_t steps = *(volatile uint64_t *)&pool->steps;
	if (pm_mode(argc, argv, "order"))
		return pool->begun == pool->ended ? 0 : fail(steps);
	if (pm_mode(argc, argv, "loss"))
		return !pool->valid || pool->record == 7 ? 0 : fail(steps);
	pool->begun = 1; /* too early */
	pm_persist(&pool->begun);
	pool->record = 7; /* lost */
	pool->valid = 1;
	pm_persist(&pool->valid);
	for (uint64_t i = 1; i <= 3; i++) {
		pool->steps = i;
		pm_persist(&pool->steps);
	}
	pm_persist(&pool->record);
	pool->ended = 1;
	pm_persist(&pool->ended);
	return 0;
}
