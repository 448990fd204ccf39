// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// A field of an object is flushed once.
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
	root[0] = 1;
	pmemobj_flush(pool, &root[0], sizeof(root[0]));
	pmemobj_drain(pool);
	pmemobj_close(pool);
	return 0;
}
