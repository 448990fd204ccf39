// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// An object that was allocated in the transaction is added to it.
#include "../../programs/objects.h"

POBJ_LAYOUT_BEGIN(fresh);
POBJ_LAYOUT_ROOT(fresh, struct root);
POBJ_LAYOUT_TOID(fresh, struct node);
POBJ_LAYOUT_END(fresh);

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
	TX_BEGIN(pool) {
		TX_ADD(root);
		TOID(struct node) node = TX_ZNEW(struct node);
		TX_ADD(node); // expect: PF0506
		D_RW(node)->value = 8;
		D_RW(root)->node = node;
	} TX_END
	pmemobj_close(pool);
	return 0;
}
