// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--fill 0xcc"
// A node is durable before the number that refers to it is stored.
#include "../../programs/pm.h"

struct node {
	/* The number of the next node; zero ends the list. */
	uint64_t next;
	uint64_t value;
} PM_LINE;

struct pool {
	uint64_t first;
	struct node nodes[8];
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		uint64_t sum = 0;
		if (pool->first > 8)
			return 0;
		for (uint64_t at = pool->first; at; at = pool->nodes[at].next)
			sum += pool->nodes[at].value;
		return sum > 8;
	}
	pool->first = 0;
	pm_persist(&pool->first);
	for (uint64_t i = 1; i <= 3; i++) {
		pool->nodes[i].value = 1;
		pool->nodes[i].next = pool->first;
		pm_flush(&pool->nodes[i]);
		pm_fence();
		pool->first = i;
		pm_flush(&pool->first);
		pm_fence();
	}
	return 0;
}
