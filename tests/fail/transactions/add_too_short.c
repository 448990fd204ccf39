// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// Only the first eight bytes of a pair are added, but both numbers change.
#include "../../programs/objects.h"

POBJ_LAYOUT_BEGIN(pair);
POBJ_LAYOUT_ROOT(pair, struct root);
POBJ_LAYOUT_END(pair);

struct root {
	uint64_t pair[2];
};

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return objects_recover(argv[1]);
	PMEMobjpool *pool = objects_create(argv[1]);
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	uint64_t *pair = D_RW(root)->pair;
	TX_BEGIN(pool) {
		pmemobj_tx_add_range_direct(pair, sizeof(*pair));
		pair[0] = 40;
		pair[1] = 60; // expect: PF0304
	} TX_END
	pmemobj_close(pool);
	return 0;
}
