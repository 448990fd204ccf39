// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// The root object gets one value, which is made durable.
#include <libpmemobj.h>

#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	PMEMobjpool *pool;
	if (pm_mode(argc, argv, "recover")) {
		pool = pmemobj_open(argv[1], "twice");
		if (pool)
			pmemobj_close(pool);
		return 0;
	}
	pool = pmemobj_create(argv[1], "twice", PMEMOBJ_MIN_POOL, 0600);
	PM_REQUIRE(pool);
	uint64_t *root = pmemobj_direct(pmemobj_root(pool, 64));
	root[0] = 2;
	pmemobj_persist(pool, root, sizeof(root[0]));
	pmemobj_close(pool);
	return 0;
}
