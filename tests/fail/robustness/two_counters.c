// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--deny warnings"
// Two counters of the same thing become durable in another order than they are stored. Recovery uses the larger
// one, so nothing fails: by luck or by care.
#include "../../programs/pm.h"

struct pool {
	uint64_t first;
	uint64_t second PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		uint64_t second = pool->second, first = pool->first;
		return (first > second ? first : second) > 3;
	}
	for (uint64_t i = 1; i <= 3; i++) {
		pool->first = i; // lost: PF0603
		pool->second = i;
		pm_persist(&pool->second);
		pm_persist(&pool->first);
	}
	return 0;
}
