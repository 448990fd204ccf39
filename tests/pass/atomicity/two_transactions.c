// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// A change that should be atomic is made in one transaction.
#include <libpmemobj.h>

#include "../../programs/pm.h"

struct root {
	uint64_t count;
	uint64_t sum PM_LINE;
};

int main(int argc, char **argv)
{
	PMEMobjpool *pool;
	if (pm_mode(argc, argv, "recover")) {
		pool = pmemobj_open(argv[1], "sums");
		if (!pool)
			return 0;
		struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
		int bad = root->sum != root->count * (root->count + 1) / 2;
		pmemobj_close(pool);
		return bad;
	}
	pool = pmemobj_create(argv[1], "sums", PMEMOBJ_MIN_POOL, 0600);
	PM_REQUIRE(pool);
	struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
	for (int i = 0; i < 3; i++) {
		TX_BEGIN(pool) {
			pmemobj_tx_add_range_direct(&root->count, sizeof(root->count));
			root->count++;
			pmemobj_tx_add_range_direct(&root->sum, sizeof(root->sum));
			root->sum += root->count;
		} TX_END
	}
	pmemobj_close(pool);
	return 0;
}
