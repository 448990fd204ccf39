// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// The offset of a node is flushed together with the node; the node may be missing.
#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

struct pool {
	uint64_t top;
	struct {
		uint64_t key;
		uint64_t value;
	} node PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	powerfail_commit_range(&pool->top, sizeof(pool->top), &pool->node, sizeof(pool->node));
	if (pm_mode(argc, argv, "recover")) {
		uint64_t *node = (uint64_t *)((char *)pool + pool->top);
		if (!pool->top)
			return 0;
		return node[0] != 5 || node[1] != 50;
	}
	pool->node.key = 5; // expect: PF0701@record
	pool->node.value = 50; // expect: PF0701@record
	pm_flush(&pool->node);
	pool->top = offsetof(struct pool, node);
	pm_flush(&pool->top);
	pm_fence();
	return 0;
}
