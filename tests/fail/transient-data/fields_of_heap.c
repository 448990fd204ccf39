// powerfail: recover = "{bin} {pool} recover"
// Three fields of an allocator lie beside its durable pointer and are never made durable for their own sake: one finding.
#include "../../programs/pm.h"

struct heap {
	uint64_t top;
	uint64_t allocated;
	uint64_t last;
	uint64_t hint;
};

struct pool {
	struct heap heap;
	uint64_t count PM_LINE;
	uint64_t cells[16] PM_LINE;
};

static struct pool *pool;

static uint64_t *allocate(void)
{
	uint64_t at = pool->heap.top;
	pool->heap.top = at + 1;
	pm_persist(&pool->heap.top);
	pool->heap.allocated++; // expect: PF0504
	pool->heap.last = at;
	pool->heap.hint = at + 1;
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
