// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// A node is split in a transaction that knows everything that it changes.
#include "../../programs/objects.h"

struct node {
	uint64_t used;
	uint64_t moved;
};

struct root {
	uint64_t nodes;
	PMEMoid node[2];
};

static PMEMobjpool *pool;

static int recover(struct root *root)
{
	uint64_t all = 0;
	for (uint64_t i = 0; i < root->nodes; i++) {
		struct node *node = pmemobj_direct(root->node[i]);
		if (!node)
			return 2;
		all += node->used;
	}
	return all != 0 && all != 4;
}

static void split(struct root *root)
{
	struct node *old = pmemobj_direct(root->node[0]);
	PMEMoid half = pmemobj_tx_zalloc(sizeof(struct node), 1);
	struct node *node = pmemobj_direct(half);
	node->used = 2;
	pmemobj_tx_add_range_direct(&root->node[1], sizeof(PMEMoid));
	root->node[1] = half;
	pmemobj_tx_add_range_direct(&old->used, sizeof(old->used));
	old->used = 2;
	pmemobj_tx_add_range_direct(&root->nodes, sizeof(root->nodes));
	root->nodes = 2;
}

int main(int argc, char **argv)
{
	int recovers = pm_mode(argc, argv, "recover");
	pool = recovers ? objects_open(argv[1]) : objects_create(argv[1]);
	PMEMoid root = pmemobj_root(pool, sizeof(struct root));
	int status = 0;
	if (recovers) {
		status = recover(pmemobj_direct(root));
	} else {
		TX_BEGIN(pool) {
			struct root *first = pmemobj_direct(root);
			pmemobj_tx_add_range(root, 0, sizeof(struct root));
			first->node[0] = pmemobj_tx_zalloc(sizeof(struct node), 1);
			((struct node *)pmemobj_direct(first->node[0]))->used = 4;
			first->nodes = 1;
		} TX_END
		TX_BEGIN(pool) {
			split(pmemobj_direct(root));
		} TX_END
	}
	pmemobj_close(pool);
	return status;
}
