// powerfail: recover = "{bin} {pool} recover"
// An allocator counts its allocations in a variable.
#include "../../programs/pm.h"

struct heap {
	uint64_t top;
};

struct pool {
	struct heap heap;
	uint64_t count PM_LINE;
	uint64_t cells[16] PM_LINE;
};

static struct pool *pool;
static uint64_t allocated;

static uint64_t *allocate(void)
{
	uint64_t at = pool->heap.top;
	pool->heap.top = at + 1;
	pm_persist(&pool->heap.top);
	allocated++;
	return &pool->cells[at];
}

int main(int argc, char **argv)
{
	pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool->count > pool->heap.top;
	for (uint64_t i = 1; i <= 3; i++) {
		uint64_t *cell = allocate();
		*cell = i;
		pm_persist(cell);
		pool->count = i;
		pm_persist(&pool->count);
	}
	return 0;
}
