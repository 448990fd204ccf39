// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--timeout 2s"
// The length of a chunk and the end of all chunks become durable with one fence: without the length, recovery
// continues in steps of zero.
#include "../../programs/pm.h"

struct pool {
	uint64_t end;
	/* Each chunk begins with its length, in lines. */
	uint64_t chunks[8][8] PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		for (volatile uint64_t at = 0; at < pool->end;)
			at += pool->chunks[at][0];
		return 0;
	}
	for (uint64_t i = 0; i < 4; i += 2) {
		pool->chunks[i][0] = 2; // lost: PF0201
		pm_flush(pool->chunks[i]);
		pool->end = i + 2;
		pm_flush(&pool->end);
		pm_fence();
	}
	return 0;
}
