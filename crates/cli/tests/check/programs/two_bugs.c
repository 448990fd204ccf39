// A count that is durable before its entry, and a line that is flushed twice.
#include "../../../../../tests/programs/pm.h"

struct pool {
	uint64_t count;
	uint64_t entry PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool->count == 1 && pool->entry != 7;
	pool->count = 1;
	pm_persist(&pool->count);
	pool->entry = 7;
	pm_flush(&pool->entry);
	pm_flush(&pool->entry);
	pm_fence();
	return 0;
}
