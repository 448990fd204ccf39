// A fence at the beginning of each iteration, when there is nothing to wait for yet.
#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	uint64_t *pool = pm_open(argv[1], 4096);
	for (uint64_t i = 0; i < 3; i++) {
		pm_fence(); // expect: PF0502
		pool[i] = i + 1;
		pm_persist(&pool[i]);
	}
	return 0;
}
