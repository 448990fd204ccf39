// powerfail: needs = "-lpmem"
// powerfail: recover = "{bin} {pool} recover"
// pmem_flush with pmem_drain.
#include <libpmem.h>

#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	uint64_t *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool[8] > 1;
	pool[8] = 1;
	pmem_persist(&pool[8], sizeof(pool[8]));
	pool[0] = 1;
	pmem_persist(&pool[0], sizeof(pool[0]));
	pool[0] = 2;
	pmem_flush(&pool[0], sizeof(pool[0]));
	pmem_drain();
	_exit(0);
}
