// powerfail: needs = "-lpmem"
// The number of the process that has the pool open is of no use in the next one.
#include <libpmem.h>

#include "../../programs/pm.h"

struct pool {
	uint64_t value;
	uint64_t owner PM_LINE;
};

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	struct pool *pool = pm_open(argv[1], 4096);
	pool->owner = (uint64_t)getpid(); // expect: PF0504
	pool->value = 1;
	pmem_persist(&pool->value, sizeof(pool->value));
	return pool->owner == 0;
}
