// powerfail: recover = "{bin} {pool} recover"
// A record is durable before the flag says that it is valid.
#include "../../programs/pm.h"

struct pool {
	uint64_t value;
	uint64_t is_valid PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool->is_valid == 1 && pool->value != 42;
	pool->value = 42;
	pm_flush(&pool->value);
	pm_fence();
	pool->is_valid = 1;
	pm_flush(&pool->is_valid);
	pm_fence();
	return 0;
}
