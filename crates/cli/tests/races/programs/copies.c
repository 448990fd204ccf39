// Two copies of a value and a bit that says that one of them is there, each on its own line. -DORDERED makes the copies
// durable before the bit.
//
// Recovery survives the loss of either copy and the loss of the bit. It aborts if the bit survives alone. It reads the
// second copy only if the first one is not there.
#include "../../../../../tests/programs/pm.h"

struct pool {
	uint64_t valid PM_LINE;
	uint64_t copies[2][8] PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		if (!pool->valid) // reads the bit
			return 0;
		if (pool->copies[0][0] != 7 && pool->copies[1][0] != 7)
			abort();
		return 0;
	}
	pool->copies[0][0] = 7;
	pool->copies[1][0] = 7;
	pm_flush(pool->copies[0]);
	pm_flush(pool->copies[1]);
#ifdef ORDERED
	pm_fence();
#endif
	pool->valid = 1; // stores the bit
	pm_persist(&pool->valid);
	return 0;
}
