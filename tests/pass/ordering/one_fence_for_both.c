// powerfail: needs = "-lpmem"
// powerfail: recover = "{bin} {pool} recover"
// The document is flushed and fenced before the pointer to it is stored.
#include <libpmem.h>

#include "../../programs/pm.h"

struct pool {
	uint64_t current;
	char documents[4][64] PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool->current && ((char *)pool)[pool->current] != 'd';
	for (int i = 0; i < 3; i++) {
		char text[16] = "document";
		text[8] = (char)('0' + i);
		pmem_memcpy(pool->documents[i], text, sizeof(text), PMEM_F_MEM_TEMPORAL | PMEM_F_MEM_NODRAIN);
		pmem_drain();
		pool->current = (uint64_t)(pool->documents[i] - (char *)pool);
		pmem_persist(&pool->current, sizeof(pool->current));
	}
	return 0;
}
