// powerfail: recover = "{bin} {pool} recover"
// powerfail: opt = "-O2"
// The same as with a helper that is called, after the compiler has inlined it.
#include "../../programs/pm.h"

struct pool {
	uint64_t head PM_LINE;
	uint64_t value PM_LINE;
};

static inline __attribute__((always_inline)) void put_u64(volatile uint64_t *at, uint64_t value)
{
	*at = value;
}

static inline __attribute__((always_inline)) void persist(volatile void *at)
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
