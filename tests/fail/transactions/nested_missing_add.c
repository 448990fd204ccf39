// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// A function with its own transaction is called in a transaction. Neither the function nor its caller adds the data.
#include "../../programs/objects.h"

POBJ_LAYOUT_BEGIN(store);
POBJ_LAYOUT_ROOT(store, struct root);
POBJ_LAYOUT_END(store);

struct root {
	uint64_t value;
	uint64_t changes;
};

static void count_change(PMEMobjpool *pool, TOID(struct root) root)
{
	TX_BEGIN(pool) {
		D_RW(root)->changes = 1; // expect: PF0304
	} TX_END
}

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return objects_recover(argv[1]);
	PMEMobjpool *pool = objects_create(argv[1]);
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	TX_BEGIN(pool) {
		TX_ADD_FIELD(root, value);
		D_RW(root)->value = 5;
		count_change(pool, root);
	} TX_END
	pmemobj_close(pool);
	return 0;
}
