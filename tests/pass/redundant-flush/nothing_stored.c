// powerfail: needs = "-lpmem"
// A header is flushed once, because it changes only once.
#include <libpmem.h>

#include "../../programs/pm.h"

struct pool {
	uint64_t version;
	uint64_t entries[8] PM_LINE;
};

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	struct pool *pool = pm_open(argv[1], 4096);
	pool->version = 3;
	pmem_persist(&pool->version, sizeof(pool->version));
	for (uint64_t i = 0; i < 3; i++) {
		pool->entries[i] = i + 1;
		pmem_flush(&pool->entries[i], sizeof(pool->entries[i]));
		pmem_drain();
	}
	return 0;
}
