// powerfail: needs = "-lpmem"
// The id of the process that has the pool open is useless to the next process.
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
