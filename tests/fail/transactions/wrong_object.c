// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// A node is linked after the last node of a list. The new node is added, but the last one changes.
#include "../../programs/objects.h"

POBJ_LAYOUT_BEGIN(list);
POBJ_LAYOUT_ROOT(list, struct root);
POBJ_LAYOUT_TOID(list, struct node);
POBJ_LAYOUT_END(list);

struct node {
	uint64_t value;
	uint64_t next;
};

struct root {
	TOID(struct node) first;
	TOID(struct node) second;
};

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return objects_recover(argv[1]);
	PMEMobjpool *pool = objects_create(argv[1]);
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	POBJ_ZNEW(pool, &D_RW(root)->first, struct node);
	POBJ_ZNEW(pool, &D_RW(root)->second, struct node);
	TOID(struct node) first = D_RO(root)->first, second = D_RO(root)->second;
	TX_BEGIN(pool) {
		TX_ADD(second);
		D_RW(first)->next = second.oid.off; // expect: PF0304
	} TX_END
	pmemobj_persist(pool, D_RW(first), sizeof(struct node));
	pmemobj_close(pool);
	return 0;
}
