// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// powerfail: checker = "{bin} {pool} check"
// A transaction adds one field and changes two: after a rollback the other field has the new value.
#include <libpmemobj.h>

#include "../../programs/pm.h"

struct root {
	uint64_t begun;
	uint64_t ended PM_LINE;
};

int main(int argc, char **argv)
{
	PMEMobjpool *pool;
	if (argc > 2) {
		pool = pmemobj_open(argv[1], "pairs");
		if (!pool)
			return 0;
		struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
		int bad = pm_mode(argc, argv, "check") && root->begun != root->ended;
		pmemobj_close(pool);
		return bad;
	}
	pool = pmemobj_create(argv[1], "pairs", PMEMOBJ_MIN_POOL, 0600);
	PM_REQUIRE(pool);
	struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
	for (uint64_t i = 1; i <= 3; i++) {
		TX_BEGIN(pool) {
			root->begun = i; // expect: PF0304
			pmemobj_persist(pool, &root->begun, sizeof(root->begun));
			pmemobj_tx_add_range_direct(&root->ended, sizeof(root->ended));
			root->ended = i;
		} TX_END
	}
	pmemobj_close(pool);
	return 0;
}
