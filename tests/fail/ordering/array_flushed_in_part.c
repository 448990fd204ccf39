// powerfail: recover = "{bin} {pool} recover"
// The length of an array in bytes is computed with a smaller element size: its last lines are not flushed
// before the commit store.
#include "../../programs/pm.h"

#define COUNT 32

struct pool {
	uint64_t is_filled;
	uint64_t elements[COUNT] PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		for (uint64_t i = 0; pool->is_filled && i < COUNT; i++)
			if (pool->elements[i] != i + 1)
				return 1;
		return 0;
	}
	for (uint64_t i = 0; i < COUNT; i++)
		pool->elements[i] = i + 1; // lost: PF0201
	pm_flush_range(pool->elements, COUNT * sizeof(uint32_t));
	pm_fence();
	pool->is_filled = 1;
	pm_persist(&pool->is_filled);
	pm_flush_range(&pool->elements[COUNT / 2], COUNT * sizeof(uint32_t));
	pm_fence();
	return 0;
}
