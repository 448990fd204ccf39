// powerfail: recover = "{bin} {pool} recover"
// The number of entries is incremented after the entry is stored.
#include "../../programs/pm.h"

struct pool {
	uint64_t count;
	uint64_t entries[8] PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		for (uint64_t i = 0; i < pool->count; i++)
			if (pool->entries[i] != 1000 + i)
				return 1;
		return 0;
	}
	for (uint64_t i = 0; i < 4; i++) {
		pool->entries[i] = 1000 + i;
		pm_persist(&pool->entries[i]);
		pool->count = i + 1;
		pm_persist(&pool->count);
	}
	return 0;
}
