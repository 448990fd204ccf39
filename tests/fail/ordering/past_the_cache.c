// powerfail: recover = "{bin} {pool} recover"
// A record is written with non-temporal stores, and no fence waits for them before a flag says that it is valid.
#include "../../programs/pm.h"

struct pool {
	uint64_t is_valid;
	uint64_t words[8] PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		for (uint64_t i = 0; pool->is_valid && i < 8; i++)
			if (pool->words[i] != i + 1)
				return 1;
		return 0;
	}
	for (uint64_t i = 0; i < 8; i++)
		pm_store_past_cache(&pool->words[i], i + 1); // lost: PF0201
	pool->is_valid = 1;
	pm_persist(&pool->is_valid);
	return 0;
}
