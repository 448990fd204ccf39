// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// Each element of an array is added.
#include "../../programs/objects.h"

POBJ_LAYOUT_BEGIN(array);
POBJ_LAYOUT_ROOT(array, struct root);
POBJ_LAYOUT_END(array);

struct root {
	uint64_t elements[4];
};

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return objects_recover(argv[1]);
	PMEMobjpool *pool = objects_create(argv[1]);
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	TX_BEGIN(pool) {
		for (uint64_t i = 0; i < 4; i++) {
			TX_ADD_FIELD(root, elements[i]);
			D_RW(root)->elements[i] = i + 1;
		}
	} TX_END
	pmemobj_close(pool);
	return 0;
}
