// powerfail: opt = "-O2"
// Non-temporal stores need a fence, but one is enough.
#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	uint64_t *pool = pm_open(argv[1], 4096);
	for (int i = 0; i < 8; i++)
		pm_store_past_cache(&pool[i], i + 1);
	pm_fence();
	return 0;
}
