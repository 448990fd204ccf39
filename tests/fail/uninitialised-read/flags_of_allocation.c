// powerfail: flags = "--races"
// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// A table is allocated with flags, and the flag for zeroing is missing.
#include "../../programs/objects.h"

POBJ_LAYOUT_BEGIN(tables);
POBJ_LAYOUT_ROOT(tables, struct root);
POBJ_LAYOUT_END(tables);

struct root {
	PMEMoid table;
	uint64_t is_ready PM_LINE;
};

static int recover(PMEMobjpool *pool)
{
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	PMEMoid oid = D_RO(root)->table;
	int bad = !OID_IS_NULL(oid) && *(const uint64_t *)pmemobj_direct(oid) != 0;
	pmemobj_close(pool);
	return bad;
}

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return recover(objects_open(argv[1]));
	PMEMobjpool *pool = objects_create(argv[1]);
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	TX_BEGIN(pool) {
		TX_ADD_FIELD(root, table);
		D_RW(root)->table = pmemobj_tx_xalloc(128, 1, POBJ_XALLOC_NO_ABORT); // expect: PF0703
	} TX_END
	D_RW(root)->is_ready = 1;
	pmemobj_persist(pool, &D_RW(root)->is_ready, sizeof(uint64_t));
	pmemobj_close(pool);
	return 0;
}
