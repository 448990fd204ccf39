// powerfail: recover = "{bin} {pool} recover"
// powerfail: checker = "{bin} {pool} check"
// Recovery counts the marks anew; the checker counts them and compares.
#include "../../programs/pm.h"

struct pool {
	uint64_t used;
	uint64_t marks[8] PM_LINE;
};

static uint64_t count(const struct pool *pool)
{
	uint64_t marks = 0;
	for (int i = 0; i < 8; i++)
		marks += pool->marks[i];
	return marks;
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		pool->used = count(pool);
		pm_persist(&pool->used);
		return 0;
	}
	if (pm_mode(argc, argv, "check"))
		return count(pool) != pool->used;
	for (uint64_t i = 0; i < 3; i++) {
		pool->marks[i] = 1;
		pm_persist(&pool->marks[i]);
		pool->used = i + 1;
		pm_persist(&pool->used);
	}
	return 0;
}
