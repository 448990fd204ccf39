// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// A node is inserted, and only the neighbour that changes is added.
#include "../../programs/objects.h"

POBJ_LAYOUT_BEGIN(ring);
POBJ_LAYOUT_ROOT(ring, struct root);
POBJ_LAYOUT_TOID(ring, struct node);
POBJ_LAYOUT_END(ring);

struct node {
	TOID(struct node) next;
};

struct root {
	TOID(struct node) before;
	TOID(struct node) after;
};

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return objects_recover(argv[1]);
	PMEMobjpool *pool = objects_create(argv[1]);
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	POBJ_ZNEW(pool, &D_RW(root)->before, struct node);
	POBJ_ZNEW(pool, &D_RW(root)->after, struct node);
	TX_BEGIN(pool) {
		TOID(struct node) node = TX_ZNEW(struct node);
		D_RW(node)->next = D_RO(root)->after;
		TX_ADD(D_RO(root)->before);
		D_RW(D_RW(root)->before)->next = node;
	} TX_END
	pmemobj_close(pool);
	return 0;
}
