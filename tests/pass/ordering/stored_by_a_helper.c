// powerfail: recover = "{bin} {pool} recover"
// All stores and flushes are in helpers, and the value is persisted before the head.
#include "../../programs/pm.h"

struct pool {
	uint64_t head PM_LINE;
	uint64_t value PM_LINE;
};

static void put_u64(uint64_t *at, uint64_t value)
{
	*at = value;
}

static void persist(const void *at)
{
	pm_persist(at);
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool->head && pool->value != 42;
	put_u64(&pool->value, 42);
	persist(&pool->value);
	put_u64(&pool->head, 1);
	persist(&pool->head);
	return 0;
}
