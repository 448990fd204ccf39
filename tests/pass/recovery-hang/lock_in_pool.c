// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--timeout 2s"
// A lock in the pool is durable. Recovery releases it, because no thread holds it after a crash.
#include "../../programs/pm.h"

struct pool {
	uint64_t locked;
	uint64_t value PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		*(volatile uint64_t *)&pool->locked = 0;
		pm_persist(&pool->locked);
		while (*(volatile uint64_t *)&pool->locked)
			usleep(1000);
		return 0;
	}
	for (uint64_t i = 1; i <= 2; i++) {
		pool->locked = 1;
		pm_persist(&pool->locked);
		pool->value = i;
		pm_persist(&pool->value);
		pool->locked = 0;
		pm_persist(&pool->locked);
	}
	return 0;
}
