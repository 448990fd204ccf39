// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--timeout 2s"
// A list is reversed in place; in between, two nodes point to each other. Recovery stops after as many steps
// as there are nodes.
#include "../../programs/pm.h"

struct node {
	uint64_t next;
} PM_LINE;

struct pool {
	uint64_t head;
	struct node nodes[4];
};

static void set(uint64_t *at, uint64_t value)
{
	*at = value;
	pm_persist(at);
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		int steps = 0;
		for (uint64_t at = pool->head; at; at = pool->nodes[at].next) {
			if (steps == 3)
				break;
			steps++;
			usleep(1000);
		}
		return 0;
	}
	set(&pool->nodes[1].next, 2);
	set(&pool->head, 1);
	set(&pool->nodes[2].next, 1);
	set(&pool->nodes[1].next, 0);
	set(&pool->head, 2);
	return 0;
}
