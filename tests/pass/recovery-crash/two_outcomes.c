// powerfail: recover = "{bin} {pool} recover"
// One store survives without its partner, and recovery completes that, however many steps were made.
#include "../../programs/pm.h"

struct pool {
	uint64_t begun;
	uint64_t steps PM_LINE;
	uint64_t ended PM_LINE;
};

static int recover(struct pool *pool)
{
	if (pool->begun == pool->ended)
		return 0;
	if (pool->steps > 2)
		abort();
	pool->ended = pool->begun;
	pm_persist(&pool->ended);
	return 0;
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return recover(pool);
	pool->begun = 1;
	pm_persist(&pool->begun);
	for (uint64_t i = 1; i <= 2; i++) {
		pool->steps = i;
		pm_persist(&pool->steps);
	}
	pool->ended = 1;
	pm_persist(&pool->ended);
	return 0;
}
