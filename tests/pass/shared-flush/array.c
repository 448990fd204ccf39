// powerfail: opt = "-O2"
// powerfail: flags = "--deny warnings"
// All elements of an array, each with its own flush.
#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	volatile uint64_t *pool = pm_open(argv[1], 4096);
	for (uint64_t i = 0; i < 4; i++) {
		pool[i] = i + 1;
		pm_persist(&pool[i]);
	}
	return 0;
}
