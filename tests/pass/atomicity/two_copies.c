// powerfail: recover = "{bin} {pool} recover"
// Two copies of a value, one made durable after the other, and a recovery that repairs the second one.
#include "../../programs/pm.h"

struct pool {
	uint64_t value;
	uint64_t copy PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		if (pool->value != pool->copy) {
			pool->copy = pool->value;
			pm_persist(&pool->copy);
		}
		return 0;
	}
	for (uint64_t i = 1; i <= 3; i++) {
		pool->value = i;
		pm_persist(&pool->value);
		pool->copy = i;
		pm_persist(&pool->copy);
	}
	return 0;
}
