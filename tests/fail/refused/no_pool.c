// powerfail: unchecked
// A target that maps no pool at all: there is nothing to check.
#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	uint64_t *pool = calloc(1, 4096);
	PM_REQUIRE(pool);
	pool[0] = (uint64_t)argv[1][0];
	return pool[0] == 0;
}
