// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// A value is written with a non-temporal store, and no fence waits for it before the flag.
#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

struct pool {
	uint64_t is_valid;
	uint64_t value PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	powerfail_commit_range(&pool->is_valid, sizeof(pool->is_valid), &pool->value, sizeof(pool->value));
	if (pm_mode(argc, argv, "recover"))
		return pool->is_valid && pool->value != 9;
	pm_store_past_cache(&pool->value, 9); // expect: PF0701
	pool->is_valid = 1;
	pm_persist(&pool->is_valid);
	return 0;
}
