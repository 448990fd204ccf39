// powerfail: workload = "{bin} run"
// powerfail: recover = "{bin} recover"
// powerfail: path = "/tmp/powerfail-planted-pass.pool"
// The path of the pool is part of the program.
#include "../../programs/pm.h"

#define PATH "/tmp/powerfail-planted-pass.pool"

struct pool {
	uint64_t begun;
	uint64_t ended PM_LINE;
};

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	struct pool *pool = pm_open(PATH, 4096);
	if (strcmp(argv[1], "recover") == 0)
		return pool->begun - pool->ended > 1;
	for (uint64_t i = 1; i <= 2; i++) {
		pool->begun = i;
		pm_persist(&pool->begun);
		pool->ended = i;
		pm_persist(&pool->ended);
	}
	return 0;
}
