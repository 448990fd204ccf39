// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// A node is inserted into a list in a transaction; the length of the list is changed with it, and both are added.
#include "../../programs/objects.h"

POBJ_LAYOUT_BEGIN(list);
POBJ_LAYOUT_ROOT(list, struct root);
POBJ_LAYOUT_TOID(list, struct node);
POBJ_LAYOUT_END(list);

struct node {
	uint64_t value;
	TOID(struct node) next;
};

struct root {
	TOID(struct node) head;
	uint64_t length;
};

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return objects_recover(argv[1]);
	PMEMobjpool *pool = objects_create(argv[1]);
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	TX_BEGIN(pool) {
		TOID(struct node) node = TX_ZNEW(struct node);
		D_RW(node)->value = 1;
		TX_ADD_FIELD(root, head);
		D_RW(root)->head = node;
		TX_ADD_FIELD(root, length);
		D_RW(root)->length = 1;
	} TX_END
	pmemobj_close(pool);
	return 0;
}
