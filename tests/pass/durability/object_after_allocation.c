// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// An object is allocated with zeros and then filled and made durable.
#include "../../programs/objects.h"

POBJ_LAYOUT_BEGIN(nodes);
POBJ_LAYOUT_ROOT(nodes, struct root);
POBJ_LAYOUT_TOID(nodes, struct node);
POBJ_LAYOUT_END(nodes);

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
	D_RW(D_RW(root)->node)->value = 5;
	pmemobj_persist(pool, D_RW(D_RW(root)->node), sizeof(struct node));
	pmemobj_close(pool);
	return 0;
}
