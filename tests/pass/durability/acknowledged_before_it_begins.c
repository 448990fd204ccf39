// powerfail: recover = "{bin} {pool} recover"
// powerfail: dump = "{bin} {pool} dump"
// powerfail: ack = "ok (\d+)"
// An entry is valid once `used` counts it; the program prints ok when both are durable.
#include "../../programs/pm.h"

struct pool {
	uint64_t used;
	uint64_t entries[8] PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool->used > 3;
	if (pm_mode(argc, argv, "dump")) {
		for (uint64_t i = 0; i < pool->used; i++)
			printf("%lu\n", pool->entries[i]);
		return 0;
	}
	for (uint64_t i = 0; i < 3; i++) {
		pool->entries[i] = 300 + i;
		pm_persist(&pool->entries[i]);
		pool->used = i + 1;
		pm_persist(&pool->used);
		pm_acknowledge(300 + i);
	}
	return 0;
}
