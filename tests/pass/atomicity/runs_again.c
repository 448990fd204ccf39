// The workload itself is the recovery: it opens the existing pool and continues. It requires that the pages
// of its book are numbered without a gap.
#include "../../programs/pm.h"

struct pool {
	uint64_t pages;
	uint64_t numbers[16] PM_LINE;
};

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	struct pool *pool = pm_open(argv[1], 4096);
	for (uint64_t i = 0; i < pool->pages; i++)
		if (pool->numbers[i] != i + 1)
			return 1;
	for (int i = 0; i < 3 && pool->pages < 8; i++) {
		uint64_t page = pool->pages;
		pool->numbers[page] = page + 1;
		pm_persist(&pool->numbers[page]);
		pool->pages = page + 1;
		pm_persist(&pool->pages);
	}
	return 0;
}
