// powerfail: needs = "-lpmem"
// powerfail: recover = "{bin} {pool} recover"
// Recovery asserts a condition that no crash can violate.
#include <assert.h>
#include <libpmem.h>

#include "../../programs/pm.h"

struct pool {
	uint64_t opened;
	uint64_t closed PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		assert(pool->opened - pool->closed <= 1);
		return 0;
	}
	for (uint64_t i = 1; i <= 3; i++) {
		pool->opened = i;
		pmem_persist(&pool->opened, sizeof(pool->opened));
		pool->closed = i;
		pmem_persist(&pool->closed, sizeof(pool->closed));
	}
	return 0;
}
