// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// A message in the root object is made durable before it is published by its offset.
#include <libpmemobj.h>

#include "../../programs/pm.h"

struct root {
	uint64_t newest;
	uint64_t messages[8][8] PM_LINE;
};

int main(int argc, char **argv)
{
	PMEMobjpool *pool;
	if (pm_mode(argc, argv, "recover")) {
		pool = pmemobj_open(argv[1], "messages");
		if (!pool)
			return 0;
		int bad = 0;
		PMEMoid oid = pmemobj_root(pool, sizeof(struct root));
		struct root *root = pmemobj_direct(oid);
		if (root->newest)
			bad = *(uint64_t *)((char *)pool + root->newest) == 0;
		pmemobj_close(pool);
		return bad;
	}
	pool = pmemobj_create(argv[1], "messages", PMEMOBJ_MIN_POOL, 0600);
	PM_REQUIRE(pool);
	struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
	for (uint64_t i = 0; i < 3; i++) {
		uint64_t *message = root->messages[i];
		*message = 1000 + i;
		pmemobj_persist(pool, message, sizeof(*message));
		root->newest = (uint64_t)((char *)message - (char *)pool);
		pmemobj_persist(pool, &root->newest, sizeof(root->newest));
	}
	pmemobj_close(pool);
	return 0;
}
