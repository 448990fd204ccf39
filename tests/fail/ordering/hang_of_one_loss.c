// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--timeout 2s"
// powerfail: does = "SIGABRT, did not end, status 1"
// A record is made valid before it is durable. What recovery does without it depends on how far the program went on: it
// aborts, waits for ever, or fails. That is one bug.
#include "../../programs/pm.h"

struct pool {
	uint64_t valid;
	uint64_t steps PM_LINE;
	uint64_t record PM_LINE;
};

static int recover(const struct pool *pool)
{
	if (!pool->valid || pool->record == 7)
		return 0;
	if (pool->steps == 0)
		abort();
	while (pool->steps == 1)
		usleep(1000);
	return 1;
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return recover(pool);
	pool->record = 7; // lost: PF0201
	pool->valid = 1;
	pm_persist(&pool->valid);
	for (uint64_t i = 1; i <= 2; i++) {
		pool->steps = i;
		pm_persist(&pool->steps);
	}
	pm_persist(&pool->record);
	return 0;
}
