// powerfail: needs = "-lpmem"
// powerfail: recover = "{bin} {pool} recover"
// pmem_memcpy_nodrain of a few bytes flushes them and leaves the fence to the caller.
#include <libpmem.h>

#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	char *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool[64] != 0 && pool[64] != 1;
	const char name[8] = "name";
	pool[64] = 1;
	pmem_persist(&pool[64], 1);
	pmem_memcpy(pool, name, sizeof(name), PMEM_F_MEM_TEMPORAL | PMEM_F_MEM_NODRAIN); // expect: PF0102
	_exit(0);
}
