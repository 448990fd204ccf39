// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--atomicity 8"
// A store of 8 bytes, which the hardware makes durable as a whole.
#include "../../programs/pm.h"

struct pool {
	uint32_t pair[2] PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool->pair[0] != pool->pair[1];
	*(uint64_t *)pool->pair = 7ul << 32 | 7;
	pm_persist(pool->pair);
	return 0;
}
