// powerfail: flags = "--races"
// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// An object is allocated atomically, with zeros.
#include "../../programs/objects.h"

POBJ_LAYOUT_BEGIN(accounts);
POBJ_LAYOUT_ROOT(accounts, struct root);
POBJ_LAYOUT_TOID(accounts, struct account);
POBJ_LAYOUT_END(accounts);

struct account {
	uint64_t balance;
};

struct root {
	TOID(struct account) account;
	uint64_t is_ready PM_LINE;
};

static int recover(PMEMobjpool *pool)
{
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	TOID(struct account) account = D_RO(root)->account;
	int bad = !TOID_IS_NULL(account) && D_RO(account)->balance > 1000;
	pmemobj_close(pool);
	return bad;
}

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return recover(objects_open(argv[1]));
	PMEMobjpool *pool = objects_create(argv[1]);
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	POBJ_ZALLOC(pool, &D_RW(root)->account, struct account, sizeof(struct account));
	D_RW(root)->is_ready = 1;
	pmemobj_persist(pool, &D_RW(root)->is_ready, sizeof(uint64_t));
	pmemobj_close(pool);
	return 0;
}
