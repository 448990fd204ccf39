// powerfail: recover = "{bin} {pool} recover"
// powerfail: does = "SIGABRT, SIGSEGV, status 1"
// One store survives without its partner. As long as nothing else has happened, recovery aborts; later it exits with an
// error, and then a null pointer is followed. That is one bug.
#include "../../programs/pm.h"

struct pool {
	uint64_t begun;
	uint64_t steps PM_LINE;
	uint64_t ended PM_LINE;
};

static int recover(const struct pool *pool)
{
	if (pool->begun == pool->ended)
		return 0;
	if (pool->steps == 0)
		abort();
	if (pool->steps == 1)
		return 1;
	return *(volatile int *)(uintptr_t)pool->ended;
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return recover(pool);
	pool->begun = 1; // expect: PF0401
	pm_persist(&pool->begun);
	for (uint64_t i = 1; i <= 2; i++) {
		pool->steps = i;
		pm_persist(&pool->steps);
	}
	pool->ended = 1;
	pm_persist(&pool->ended);
	return 0;
}
