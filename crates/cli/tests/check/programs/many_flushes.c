// Three lines, of which each is flushed twice, in one function.
#include "../../../../../tests/programs/pm.h"

struct pool {
	uint64_t one PM_LINE;
	uint64_t two PM_LINE;
	uint64_t three PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[argc - 1], 4096);
	pool->one = 1;
	pm_flush(&pool->one);
	pm_persist(&pool->one);
	pool->two = 2;
	pm_flush(&pool->two);
	pm_persist(&pool->two);
	pool->three = 3;
	pm_flush(&pool->three);
	pm_persist(&pool->three);
	return 0;
}
