// powerfail: flags = "--races"
// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// An array grows, and its new part is zeroed.
#include "../../programs/objects.h"

POBJ_LAYOUT_BEGIN(arrays);
POBJ_LAYOUT_ROOT(arrays, struct root);
POBJ_LAYOUT_END(arrays);

struct root {
	PMEMoid array;
	uint64_t is_ready PM_LINE;
};

static int recover(PMEMobjpool *pool)
{
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	PMEMoid oid = D_RO(root)->array;
	const uint64_t *array = pmemobj_direct(oid);
	uint64_t length = OID_IS_NULL(oid) || pmemobj_alloc_usable_size(oid) < 256 ? 4 : 32;
	int bad = 0;
	for (uint64_t i = 0; array && i < length; i++)
		bad |= array[i] != 0;
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
		TX_ADD_FIELD(root, array);
		D_RW(root)->array = pmemobj_tx_zalloc(4 * sizeof(uint64_t), 1);
	} TX_END
	TX_BEGIN(pool) {
		TX_ADD_FIELD(root, array);
		D_RW(root)->array = pmemobj_tx_zrealloc(D_RO(root)->array, 32 * sizeof(uint64_t), 1);
	} TX_END
	D_RW(root)->is_ready = 1;
	pmemobj_persist(pool, &D_RW(root)->is_ready, sizeof(uint64_t));
	pmemobj_close(pool);
	return 0;
}
