// powerfail: flags = "--deny warnings"
// Two fields happen to share a line.
#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	uint64_t *pool = pm_open(argv[1], 4096);
	pool[0] = 1; // expect: PF0601@pair
	pool[1] = 2; // expect: PF0601@pair
	pm_persist(&pool[1]); // expect: PF0601@pair
	return 0;
}
