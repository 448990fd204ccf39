/* Counts in many small steps, each durable before the next one. At the end a record is changed in two steps; with BUG a
   power failure between them is seen. */
#include "../../../../../tests/programs/pm.h"

#define STEPS 100000

struct pool {
	uint64_t steps;
	uint64_t left PM_LINE;
	uint64_t right PM_LINE;
};

static void put(uint64_t *field, uint64_t value)
{
	*field = value;
	pm_flush(field);
	pm_fence();
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
#ifdef BUG
		if (pool->left != pool->right)
			abort();
#endif
		return pool->left > STEPS || pool->right > STEPS || pool->steps > STEPS;
	}
	for (uint64_t step = 1; step <= STEPS; step++)
		put(&pool->steps, step);
	put(&pool->left, 1);
	put(&pool->right, 1);
	return 0;
}
