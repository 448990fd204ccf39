// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// A computed value is kept in a variable, not in the object, which is not zeroed.
#include <libpmemobj.h>

#include "../../programs/pm.h"

struct item {
	uint64_t value;
	uint64_t unused[31];
	uint64_t cached[32];
};

static int construct(PMEMobjpool *pool, void *at, void *unused)
{
	struct item *item = at;
	(void)unused;
	item->value = 12;
	pmemobj_persist(pool, &item->value, sizeof(item->value));
	return 0;
}

int main(int argc, char **argv)
{
	PMEMobjpool *pool;
	if (pm_mode(argc, argv, "recover")) {
		pool = pmemobj_open(argv[1], "cached");
		if (pool)
			pmemobj_close(pool);
		return 0;
	}
	pool = pmemobj_create(argv[1], "cached", PMEMOBJ_MIN_POOL, 0600);
	PM_REQUIRE(pool);
	PMEMoid *first = pmemobj_direct(pmemobj_root(pool, sizeof(PMEMoid)));
	PM_REQUIRE(pmemobj_alloc(pool, first, sizeof(struct item), 1, construct, NULL) == 0);
	struct item *item = pmemobj_direct(*first);
	uint64_t cached[1];
	*cached = item->value * item->value;
	PM_REQUIRE(*cached == 144);
	pmemobj_close(pool);
	return 0;
}
