// powerfail: recover = "{bin} {pool} recover"
// The link of a list is durable before its length: recovery never follows a null pointer.
#include "../../programs/pm.h"

struct node {
	uint64_t value;
	uint64_t next;
} PM_LINE;

struct pool {
	uint64_t len;
	uint64_t head PM_LINE;
	struct node nodes[8];
};

static struct node *node_at(struct pool *pool, uint64_t offset)
{
	return offset ? (struct node *)((char *)pool + offset) : NULL;
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		uint64_t sum = 0, at = pool->head;
		for (uint64_t i = 0; i < pool->len; i++) {
			struct node *node = node_at(pool, at);
			sum += node->value;
			at = node->next;
		}
		return sum > 100;
	}
	for (uint64_t i = 0; i < 3; i++) {
		pool->nodes[i].value = i;
		pool->nodes[i].next = pool->head;
		pm_persist(&pool->nodes[i]);
		pool->head = (uint64_t)((char *)&pool->nodes[i] - (char *)pool);
		pm_persist(&pool->head);
		pool->len = i + 1;
		pm_persist(&pool->len);
	}
	return 0;
}
