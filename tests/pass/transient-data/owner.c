// powerfail: needs = "-lpmem"
// The number of the process that has the pool open is of no use in the next one.
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
