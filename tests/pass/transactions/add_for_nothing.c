// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// A transaction adds the node that it changes, but not the root that points to it.
#include "../../programs/objects.h"

POBJ_LAYOUT_BEGIN(tree);
POBJ_LAYOUT_ROOT(tree, struct root);
POBJ_LAYOUT_TOID(tree, struct node);
POBJ_LAYOUT_END(tree);

struct node {
	uint64_t value;
};

struct root {
	TOID(struct node) node;
};

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return objects_recover(argv[1]);
	PMEMobjpool *pool = objects_create(argv[1]);
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	POBJ_ZNEW(pool, &D_RW(root)->node, struct node);
	TX_BEGIN(pool) {
		TX_ADD(D_RO(root)->node);
		D_RW(D_RW(root)->node)->value = 7;
	} TX_END
	pmemobj_close(pool);
	return 0;
}
