// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// A balance is added after it was changed: the undo log contains the new balance.
#include "../../programs/objects.h"

POBJ_LAYOUT_BEGIN(account);
POBJ_LAYOUT_ROOT(account, struct root);
POBJ_LAYOUT_END(account);

struct root {
	uint64_t balance;
};

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return objects_recover(argv[1]);
	PMEMobjpool *pool = objects_create(argv[1]);
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	TX_BEGIN(pool) {
		D_RW(root)->balance = 100; // expect: PF0304
		TX_ADD_FIELD(root, balance);
	} TX_END
	pmemobj_close(pool);
	return 0;
}
