// powerfail: recover = "{bin} {pool} recover"
// A record and its valid flag are on two lines, and one fence makes both durable.
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
	pool->value = 42; // lost: PF0201
	pm_flush(&pool->value);
	pool->is_valid = 1;
	pm_flush(&pool->is_valid);
	pm_fence();
	return 0;
}
