// powerfail: recover = "{bin} {pool} recover"
// Two copies of a value, one made durable after the other, and a recovery that requires them to be equal.
#include "../../programs/pm.h"

struct pool {
	uint64_t value;
	uint64_t copy PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		return pool->value != pool->copy;
	}
	for (uint64_t i = 1; i <= 3; i++) {
		pool->value = i; // expect: PF0301
		pm_persist(&pool->value);
		pool->copy = i;
		pm_persist(&pool->copy);
	}
	return 0;
}
