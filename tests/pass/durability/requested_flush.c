// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--valgrind-requests"
// Emulated persistent memory: nothing is flushed, only pmemcheck is told so. Recovery makes the same
// requests.
#include "../../programs/pm.h"
#include "../../programs/pmemcheck_requests.h"

struct pool {
	uint64_t used;
	uint64_t names[8] PM_LINE;
};

static void persist(const volatile void *at)
{
	DO_FLUSH(at, 8);
	DO_FENCE();
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	REGISTER_MAPPING(pool, 4096);
	if (pm_mode(argc, argv, "recover")) {
		for (uint64_t i = 0; i < pool->used; i++) {
			if (pool->names[i] != 100 + i)
				return 1;
			persist(&pool->names[i]);
		}
		return 0;
	}
	if (RUNNING_ON_VALGRIND() == 0)
		return 2;
	for (uint64_t i = 0; i < 3; i++) {
		pool->names[i] = 100 + i;
		persist(&pool->names[i]);
		pool->used = i + 1;
		persist(&pool->used);
	}
	return 0;
}
