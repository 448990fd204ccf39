// A field gets its value without a default.
#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	uint64_t *pool = pm_open(argv[1], 4096);
	pool[0] = 2;
	pm_persist(&pool[0]);
	return 0;
}
