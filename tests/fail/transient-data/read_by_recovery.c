// powerfail: recover = "{bin} {pool} recover"
// Hints in a line that is never flushed, and that recovery does not need.
#include "../../programs/pm.h"

struct pool {
	uint64_t entries[8];
	uint64_t hint PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool->entries[0] > 7;
	pool->entries[0] = 7;
	pm_persist(&pool->entries[0]);
	pool->hint = 1; // expect: PF0504
	return 0;
}
