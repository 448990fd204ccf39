// Two values in one line are flushed once under one fence.
#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	uint64_t *pool = pm_open(argv[1], 4096);
	pool[0] = 1;
	pool[1] = 2;
	pm_flush(&pool[0]);
	pm_fence();
	return 0;
}
