// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// One of two steps of a transaction adds their object.
#include "../../programs/objects.h"

POBJ_LAYOUT_BEGIN(point);
POBJ_LAYOUT_ROOT(point, struct root);
POBJ_LAYOUT_END(point);

struct root {
	uint64_t x, y;
};

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return objects_recover(argv[1]);
	PMEMobjpool *pool = objects_create(argv[1]);
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	TX_BEGIN(pool) {
		TX_ADD(root);
		D_RW(root)->x = 3;
		D_RW(root)->y = 4;
	} TX_END
	pmemobj_close(pool);
	return 0;
}
