// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--deny warnings"
// A hint to the end of a chain becomes durable after the link that leads there.
#include "../../programs/pm.h"

struct node {
	/* The number of the next node; zero ends the chain. */
	uint64_t next;
} PM_LINE;

struct pool {
	uint64_t last;
	struct node nodes[8];
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		uint64_t hint = pool->last, at = 0;
		while (at != hint && pool->nodes[at].next)
			at = pool->nodes[at].next;
		return at > 3;
	}
	for (uint64_t i = 1; i <= 3; i++) {
		pool->nodes[i - 1].next = i;
		pm_persist(&pool->nodes[i - 1]);
		pool->last = i;
		pm_persist(&pool->last);
	}
	return 0;
}
