// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// A transaction adds the field that it changes, but not the one that it reads.
#include "../../programs/objects.h"

POBJ_LAYOUT_BEGIN(copy);
POBJ_LAYOUT_ROOT(copy, struct root);
POBJ_LAYOUT_END(copy);

struct root {
	uint64_t from;
	uint64_t to;
};

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return objects_recover(argv[1]);
	PMEMobjpool *pool = objects_create(argv[1]);
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	D_RW(root)->from = 6;
	pmemobj_persist(pool, &D_RW(root)->from, sizeof(uint64_t));
	TX_BEGIN(pool) {
		TX_ADD_FIELD(root, to);
		D_RW(root)->to = D_RO(root)->from;
	} TX_END
	pmemobj_close(pool);
	return 0;
}
