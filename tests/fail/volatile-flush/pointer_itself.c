// powerfail: opt = "-O1"
// The variable that holds the pointer is flushed, and what it points to as well.
#include "../../programs/pm.h"

static uint64_t *pool;

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	pool = pm_open(argv[1], 4096);
	*pool = 5;
	pm_flush(pool);
	pm_flush(&pool); // expect: PF0503
	pm_fence();
	return 0;
}
