// One fence after the flush.
#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	uint64_t *pool = pm_open(argv[1], 4096);
	pool[0] = 1;
	pm_flush(&pool[0]);
	pm_fence();
	return 0;
}
