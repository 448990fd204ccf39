// powerfail: recover = "{bin} {pool} recover"
// A counter with the time of its last change, which is flushed whenever it is set.
#include "../../programs/pm.h"

struct pool {
	uint64_t count;
	uint64_t changed_at;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool->count > 3;
	for (uint64_t i = 1; i <= 3; i++) {
		pool->count = i;
		pm_persist(&pool->count);
	}
	pool->changed_at = 1700000000;
	pm_persist(&pool->changed_at);
	return 0;
}
