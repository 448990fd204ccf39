// An intermediate result is stored on the stack, because it is not needed after a crash.
#include "../../programs/pm.h"

struct pool {
	uint64_t result;
	uint64_t scratch[8] PM_LINE;
};

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	struct pool *pool = pm_open(argv[1], 4096);
	uint64_t scratch[8];
	for (uint64_t i = 0; i < 8; i++)
		scratch[i] = i * i;
	pool->result = scratch[3] + scratch[7];
	pm_persist(&pool->result);
	return 0;
}
