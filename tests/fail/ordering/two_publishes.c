// powerfail: recover = "{bin} {pool} recover"
// A queue stores an element and then the count of elements; they become durable in the opposite order.
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
		pool->elements[i] = 7 + i; // lost: PF0201
		pool->count = i + 1;
		pm_persist(&pool->count);
		pm_persist(&pool->elements[i]);
	}
	return 0;
}
