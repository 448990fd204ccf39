// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--deny warnings"
// The checksum of a record becomes durable before the record. Recovery uses the record only if they match.
#include "../../programs/pm.h"

struct pool {
	uint64_t checksum;
	uint64_t value PM_LINE;
};

static uint64_t checksum(uint64_t value)
{
	return value * 0x9e3779b97f4a7c15UL | 1;
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		uint64_t value = pool->checksum == checksum(pool->value) ? pool->value : 0;
		return value != 0 && value != 77;
	}
	pool->value = 77; // lost: PF0603
	pool->checksum = checksum(77);
	pm_persist(&pool->checksum);
	pm_persist(&pool->value);
	return 0;
}
