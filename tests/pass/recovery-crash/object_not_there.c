// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// An object is allocated before the root says that there is one.
#include <libpmemobj.h>

#include "../../programs/pm.h"

struct root {
	uint64_t filled;
	PMEMoid object PM_LINE;
};

static int construct(PMEMobjpool *pool, void *at, void *unused)
{
	(void)unused;
	*(uint64_t *)at = 77;
	pmemobj_persist(pool, at, sizeof(uint64_t));
	return 0;
}

int main(int argc, char **argv)
{
	PMEMobjpool *pool;
	if (pm_mode(argc, argv, "recover")) {
		pool = pmemobj_open(argv[1], "object");
		if (!pool)
			return 0;
		struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
		int bad = root->filled && *(uint64_t *)pmemobj_direct(root->object) != 77;
		pmemobj_close(pool);
		return bad;
	}
	pool = pmemobj_create(argv[1], "object", PMEMOBJ_MIN_POOL, 0600);
	PM_REQUIRE(pool);
	struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
	PM_REQUIRE(pmemobj_alloc(pool, &root->object, 64, 1, construct, NULL) == 0);
	root->filled = 1;
	pmemobj_persist(pool, &root->filled, sizeof(root->filled));
	pmemobj_close(pool);
	return 0;
}
