// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// A field is changed in a transaction, and another one in a second transaction.
#include "../../programs/objects.h"

POBJ_LAYOUT_BEGIN(fields);
POBJ_LAYOUT_ROOT(fields, struct root);
POBJ_LAYOUT_END(fields);

struct root {
	uint64_t value;
	uint64_t changes PM_LINE;
};

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return objects_recover(argv[1]);
	PMEMobjpool *pool = objects_create(argv[1]);
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	TX_BEGIN(pool) {
		TX_ADD_FIELD(root, value);
		D_RW(root)->value = 5;
	} TX_END
	TX_BEGIN(pool) {
		TX_ADD_FIELD(root, changes);
		D_RW(root)->changes = 1;
	} TX_END
	pmemobj_close(pool);
	return 0;
}
