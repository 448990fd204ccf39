// powerfail: flags = "--races"
// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// The first node of a list gets a value, but its next pointer is not set.
#include "../../programs/objects.h"

POBJ_LAYOUT_BEGIN(list);
POBJ_LAYOUT_ROOT(list, struct root);
POBJ_LAYOUT_TOID(list, struct node);
POBJ_LAYOUT_END(list);

struct node {
	uint64_t next;
	uint64_t value;
};

struct root {
	TOID(struct node) head;
	uint64_t is_ready PM_LINE;
};

static int recover(PMEMobjpool *pool)
{
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	TOID(struct node) head = D_RO(root)->head;
	int bad = !TOID_IS_NULL(head) && (D_RO(head)->value != 7 || D_RO(head)->next != 0);
	pmemobj_close(pool);
	return bad;
}

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return recover(objects_open(argv[1]));
	PMEMobjpool *pool = objects_create(argv[1]);
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	TX_BEGIN(pool) {
		TOID(struct node) node = TX_NEW(struct node); // expect: PF0703
		D_RW(node)->value = 7;
		TX_ADD_FIELD(root, head);
		D_RW(root)->head = node;
	} TX_END
	D_RW(root)->is_ready = 1;
	pmemobj_persist(pool, &D_RW(root)->is_ready, sizeof(uint64_t));
	pmemobj_close(pool);
	return 0;
}
