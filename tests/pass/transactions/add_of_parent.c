// powerfail: recover = "{bin} {pool} recover"
// powerfail: needs = "-lpmemobj"
// A function adds the child of a tree and changes it.
#include "../../programs/objects.h"

struct node {
	uint64_t values[2];
};

struct root {
	struct node parent;
	struct node child;
};

__attribute__((noinline)) static void set_child(PMEMobjpool *pool, struct root *root, uint64_t value)
{
	TX_BEGIN(pool) {
		pmemobj_tx_add_range_direct(&root->child, sizeof(root->child));
		root->child.values[0] = value;
		root->child.values[1] = value + 1;
	} TX_END
}

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return objects_recover(argv[1]);
	PMEMobjpool *pool = objects_create(argv[1]);
	struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(*root)));
	set_child(pool, root, 3);
	set_child(pool, root, 7);
	pmemobj_close(pool);
	return 0;
}
