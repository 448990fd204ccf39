// powerfail: flags = "--deny warnings"
// Two fields that share a line, each with its own flush.
#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	uint64_t *pool = pm_open(argv[1], 4096);
	pool[0] = 1;
	pm_persist(&pool[0]);
	pool[1] = 2;
	pm_persist(&pool[1]);
	return 0;
}
