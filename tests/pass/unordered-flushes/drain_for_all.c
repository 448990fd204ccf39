// powerfail: needs = "-lpmem"
// powerfail: flags = "--deny warnings"
// Two pmem_flush, each with its own pmem_drain.
#include <libpmem.h>

#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	uint64_t *pool = pm_open(argv[1], 4096);
	pool[0] = 1;
	pmem_flush(&pool[0], sizeof(pool[0]));
	pmem_drain();
	pool[8] = 2;
	pmem_flush(&pool[8], sizeof(pool[8]));
	pmem_drain();
	return 0;
}
