// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// powerfail: dump = "{bin} {pool} dump"
// powerfail: ack = "^ok"
// Two fields of an object, changed in a transaction.
#include <libpmemobj.h>

#include "../../programs/pm.h"

struct root {
	uint64_t width;
	uint64_t height PM_LINE;
};

int main(int argc, char **argv)
{
	PMEMobjpool *pool;
	if (argc > 2) {
		pool = pmemobj_open(argv[1], "shape");
		if (!pool)
			return 0;
		struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
		if (pm_mode(argc, argv, "dump") && root->width)
			printf("%lu x %lu\n", root->width, root->height);
		pmemobj_close(pool);
		return 0;
	}
	pool = pmemobj_create(argv[1], "shape", PMEMOBJ_MIN_POOL, 0600);
	PM_REQUIRE(pool);
	struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
	for (uint64_t i = 1; i <= 3; i++) {
		TX_BEGIN(pool) {
			pmemobj_tx_add_range_direct(&root->width, sizeof(root->width));
			root->width = i;
			pmemobj_tx_add_range_direct(&root->height, sizeof(root->height));
			root->height = 2 * i;
		} TX_END
		pm_acknowledge(i);
	}
	pmemobj_close(pool);
	return 0;
}
