// powerfail: flags = "--races"
// The program continues where it was before the crash. The state from which it continues is durable.
#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

enum { STEPS = 3 };

struct pool {
	uint64_t steps;
	struct {
		uint64_t sum;
	} PM_LINE results[STEPS];
};

int main(int argc, char **argv)
{
	PM_REQUIRE(argc >= 2);
	struct pool *pool = pm_open(argv[1], 4096);
	powerfail_commit_range(&pool->steps, sizeof(pool->steps), pool->results, sizeof(pool->results));
	uint64_t done = pool->steps;
	if (done && pool->results[done - 1].sum != 10 * done)
		return 1;
	for (uint64_t i = done; i < STEPS; i++) {
		pool->results[i].sum = 10 * (i + 1);
		pm_persist(&pool->results[i]);
		pool->steps = i + 1;
		pm_persist(&pool->steps);
	}
	return 0;
}
