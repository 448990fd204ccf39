// A stack variable is flushed along with the pool.
#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	uint64_t *pool = pm_open(argv[1], 4096);
	uint64_t value = 5;
	pool[0] = value;
	pm_flush(&value); // expect: PF0503
	pm_persist(&pool[0]);
	return 0;
}
