// powerfail: recover = "{bin} {pool} recover"
// An element of a queue is durable before the count of elements is stored.
#include "../../programs/pm.h"

struct pool {
	uint64_t count;
	uint64_t elements[8] PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		for (uint64_t i = 0; i < pool->count; i++)
			if (pool->elements[i] != 7 + i)
				return 1;
		return 0;
	}
	for (uint64_t i = 0; i < 3; i++) {
		pool->elements[i] = 7 + i;
		pm_persist(&pool->elements[i]);
		pool->count = i + 1;
		pm_persist(&pool->count);
	}
	return 0;
}
