// powerfail: needs = "-lpmem"
// The id of the process that has the pool open is useless to the next process, and is not in the pool.
#include <libpmem.h>

#include "../../programs/pm.h"

struct pool {
	uint64_t value;
	uint64_t owner PM_LINE;
};

static uint64_t owner;

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	struct pool *pool = pm_open(argv[1], 4096);
	owner = (uint64_t)getpid();
	pool->value = 1;
	pmem_persist(&pool->value, sizeof(pool->value));
	return owner == 0;
}
