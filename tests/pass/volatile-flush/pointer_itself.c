// powerfail: opt = "-O1"
// The data that a pointer points to is flushed; the pointer variable is not.
#include "../../programs/pm.h"

static uint64_t *pool;

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	pool = pm_open(argv[1], 4096);
	*pool = 5;
	pm_flush(pool);
	pm_fence();
	return 0;
}
