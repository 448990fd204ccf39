// A counter and its copy, changed many times, so there are many failure points.
#include "../../../../../tests/programs/pm.h"

struct pool {
	uint64_t count;
	uint64_t copy PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool->count % 8 == 5 && pool->copy != pool->count;
	for (uint64_t i = 1; i <= 24; i++) {
		pool->count = i;
		pm_persist(&pool->count);
		pool->copy = i;
		pm_persist(&pool->copy);
	}
	return 0;
}
