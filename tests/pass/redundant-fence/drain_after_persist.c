// powerfail: needs = "-lpmem"
// pmem_persist drains, so pmem_drain is not called.
#include <libpmem.h>

#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	uint64_t *pool = pm_open(argv[1], 4096);
	pool[0] = 1;
	pmem_persist(&pool[0], sizeof(pool[0]));
	return 0;
}
