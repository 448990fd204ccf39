// powerfail: recover = "{bin} {pool} recover"
// powerfail: needs = "-lpmemobj"
// powerfail: flags = "--deny warnings --only neighbour-flush,durability,redundant-flush"
// A value beside the links of a list is not flushed: the library flushes the links.
#include "../../programs/objects.h"

struct node;
POBJ_LAYOUT_BEGIN(list);
POBJ_LAYOUT_ROOT(list, struct root);
POBJ_LAYOUT_TOID(list, struct node);
POBJ_LAYOUT_END(list);

struct node {
	uint64_t value;
	POBJ_LIST_ENTRY(struct node) links;
};

struct root {
	POBJ_LIST_HEAD(list, struct node) list;
	TOID(struct node) spare;
};

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return objects_recover(argv[1]);
	PMEMobjpool *pool = objects_create(argv[1]);
	struct root *root = D_RW(POBJ_ROOT(pool, struct root));
	POBJ_ZNEW(pool, &root->spare, struct node);
	TOID(struct node) node = root->spare;
	D_RW(node)->value = 5; // expect: PF0604
	PM_REQUIRE(POBJ_LIST_INSERT_HEAD(pool, &root->list, node, links) == 0);
	pmemobj_close(pool);
	return 0;
}
