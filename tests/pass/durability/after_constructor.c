// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// The constructor makes an object durable, and so is a later change.
#include <libpmemobj.h>

#include "../../programs/pm.h"

struct item {
	uint64_t key;
	uint64_t value;
};

static int construct(PMEMobjpool *pool, void *at, void *argument)
{
	struct item *item = at;
	item->key = *(uint64_t *)argument;
	item->value = 0;
	pmemobj_persist(pool, item, sizeof(*item));
	return 0;
}

int main(int argc, char **argv)
{
	PMEMobjpool *pool;
	if (pm_mode(argc, argv, "recover")) {
		pool = pmemobj_open(argv[1], "items");
		if (pool)
			pmemobj_close(pool);
		return 0;
	}
	pool = pmemobj_create(argv[1], "items", PMEMOBJ_MIN_POOL, 0600);
	PM_REQUIRE(pool);
	PMEMoid *first = pmemobj_direct(pmemobj_root(pool, sizeof(PMEMoid)));
	uint64_t key = 7;
	PM_REQUIRE(pmemobj_alloc(pool, first, sizeof(struct item), 1, construct, &key) == 0);
	struct item *item = pmemobj_direct(*first);
	item->value = 70;
	pmemobj_persist(pool, &item->value, sizeof(item->value));
	pmemobj_close(pool);
	return 0;
}
