// powerfail: recover = "{bin} {pool} recover"
// Functions that flush and fence, and one that calls both. One of its callers has persisted already.
#include "../../programs/pm.h"

struct pool {
	uint64_t limit;
	uint64_t used PM_LINE;
};

static struct pool *pool;

__attribute__((noinline)) static void flush(void *at)
{
	pm_flush(at);
}

__attribute__((noinline)) static void fence(void)
{
	pm_fence();
}

__attribute__((noinline)) static void persist(void *at)
{
	flush(at);
	fence();
}

static void set_limit(uint64_t limit)
{
	pool->limit = limit;
	persist(&pool->limit);
	persist(&pool->limit); // expect: PF0501
}

static void use(uint64_t used)
{
	pool->used = used;
	persist(&pool->used);
}

int main(int argc, char **argv)
{
	pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool->used > pool->limit;
	for (uint64_t i = 1; i <= 3; i++) {
		set_limit(i);
		use(i);
	}
	return 0;
}
