// powerfail: flags = "--races"
// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// A map is allocated in a transaction, and its buckets are not initialised.
#include "../../programs/objects.h"

POBJ_LAYOUT_BEGIN(maps);
POBJ_LAYOUT_ROOT(maps, struct root);
POBJ_LAYOUT_TOID(maps, struct map);
POBJ_LAYOUT_END(maps);

enum { BUCKETS = 16 };

struct map {
	uint64_t count;
	uint64_t buckets[BUCKETS] PM_LINE;
};

struct root {
	TOID(struct map) map;
	uint64_t is_ready PM_LINE;
};

static int recover(PMEMobjpool *pool)
{
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	TOID(struct map) map = D_RO(root)->map;
	int bad = 0;
	for (int i = 0; !TOID_IS_NULL(map) && i < BUCKETS; i++)
		bad |= D_RO(map)->buckets[i] != 0;
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
		TOID(struct map) map = TX_NEW(struct map); // expect: PF0703
		D_RW(map)->count = 0;
		TX_ADD_FIELD(root, map);
		D_RW(root)->map = map;
	} TX_END
	D_RW(root)->is_ready = 1;
	pmemobj_persist(pool, &D_RW(root)->is_ready, sizeof(uint64_t));
	pmemobj_close(pool);
	return 0;
}
