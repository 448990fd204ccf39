// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// A transaction changes two fields, both of which were added to it.
#include <libpmemobj.h>

#include "../../programs/pm.h"

struct root {
	uint64_t balance;
	uint64_t changes PM_LINE;
};

int main(int argc, char **argv)
{
	PMEMobjpool *pool;
	if (pm_mode(argc, argv, "recover")) {
		pool = pmemobj_open(argv[1], "account");
		if (pool)
			pmemobj_close(pool);
		return 0;
	}
	pool = pmemobj_create(argv[1], "account", PMEMOBJ_MIN_POOL, 0600);
	PM_REQUIRE(pool);
	struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
	root->changes = 1;
	pmemobj_persist(pool, &root->changes, sizeof(root->changes));
	TX_BEGIN(pool) {
		pmemobj_tx_add_range_direct(&root->balance, sizeof(root->balance));
		root->balance = 50;
		pmemobj_tx_add_range_direct(&root->changes, sizeof(root->changes));
		root->changes = 2;
	} TX_END
	pmemobj_close(pool);
	return 0;
}
