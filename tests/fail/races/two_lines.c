// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// The two lines of a record are flushed; a fence waits for them only after the flag.
#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

struct pool {
	uint64_t is_valid;
	uint64_t first PM_LINE;
	uint64_t second PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	powerfail_commit_range(&pool->is_valid, sizeof(pool->is_valid), &pool->first, 128);
	if (pm_mode(argc, argv, "recover")) {
		if (!pool->is_valid)
			return 0;
		return pool->first != 1 || pool->second != 2;
	}
	pool->first = 1; // expect: PF0701@record
	pm_flush(&pool->first);
	pool->second = 2; // expect: PF0701@record
	pm_flush(&pool->second);
	pool->is_valid = 1;
	pm_flush(&pool->is_valid);
	pm_fence();
	return 0;
}
