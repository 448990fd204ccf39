// A record that is made valid before it is durable, and a number of steps after it. Recovery reads the number only if the
// record is lost: with the newest values it reads the same after each step. -DFAILS_AT=N is the step at which it cannot do
// without the record; with 0 there is none.
#include "../../../../../tests/programs/pm.h"

enum { STEPS = 20 };

struct pool {
	uint64_t valid PM_LINE;
	uint64_t record PM_LINE;
	uint64_t steps PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		if (!pool->valid)
			return 0;
		if (pool->record == 7) // reads the record
			return 0;
		return FAILS_AT != 0 && pool->steps == FAILS_AT;
	}
	pool->record = 7; // stores the record
	pool->valid = 1;
	pm_persist(&pool->valid);
	for (uint64_t step = 1; step <= STEPS; step++) {
		pool->steps = step;
		pm_persist(&pool->steps);
	}
	pm_persist(&pool->record);
	return 0;
}
