// powerfail: recover = "{bin} {pool} recover"
// The node of a list is made durable before the head that points to it. Links are offsets in the pool.
#include "../../programs/pm.h"

struct node {
	uint64_t value;
	uint64_t next;
} PM_LINE;

struct pool {
	uint64_t head;
	struct node nodes[8];
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	char *start = (char *)pool;
	if (pm_mode(argc, argv, "recover")) {
		for (uint64_t at = pool->head; at; at = ((struct node *)(start + at))->next)
			if (((struct node *)(start + at))->value == 0)
				return 1;
		return 0;
	}
	for (int i = 0; i < 3; i++) {
		struct node *node = &pool->nodes[i];
		node->value = 10 + (uint64_t)i;
		node->next = pool->head;
		pm_persist(node);
		pool->head = (uint64_t)((char *)node - start);
		pm_persist(&pool->head);
	}
	return 0;
}
