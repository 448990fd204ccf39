// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// A transaction changes three fields of an object that was added to it.
#include <libpmemobj.h>

#include "../../programs/pm.h"

struct node {
	uint64_t length;
	uint64_t keys[2] PM_LINE;
};

static void split(struct node *node)
{
	pmemobj_tx_add_range_direct(node, sizeof(*node));
	node->length = 1;
	node->keys[0] = 10;
	node->keys[1] = 0;
}

int main(int argc, char **argv)
{
	PMEMobjpool *pool;
	if (pm_mode(argc, argv, "recover")) {
		pool = pmemobj_open(argv[1], "tree");
		if (pool)
			pmemobj_close(pool);
		return 0;
	}
	pool = pmemobj_create(argv[1], "tree", PMEMOBJ_MIN_POOL, 0600);
	PM_REQUIRE(pool);
	struct node *node = pmemobj_direct(pmemobj_root(pool, sizeof(struct node)));
	TX_BEGIN(pool) {
		split(node);
	} TX_END
	pmemobj_close(pool);
	return 0;
}
