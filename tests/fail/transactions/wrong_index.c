// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// The slot after the one that changes is added.
#include "../../programs/objects.h"

POBJ_LAYOUT_BEGIN(slots);
POBJ_LAYOUT_ROOT(slots, struct root);
POBJ_LAYOUT_END(slots);

struct root {
	uint64_t slots[4];
};

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return objects_recover(argv[1]);
	PMEMobjpool *pool = objects_create(argv[1]);
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	for (uint64_t i = 0; i < 3; i++) {
		TX_BEGIN(pool) {
			TX_ADD_FIELD(root, slots[i + 1]);
			D_RW(root)->slots[i] = 10 + i; // expect: PF0304
		} TX_END
	}
	pmemobj_close(pool);
	return 0;
}
