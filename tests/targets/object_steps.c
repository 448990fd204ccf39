/*
 * One small transaction and an aborted one in a pool of libpmemobj. Nothing is allocated:
 * the first allocation would scan the whole heap. Arguments: "create" or "use", and the
 * pool.
 */
#include <libpmemobj.h>

#include "pool.h"

struct root {
	uint64_t value;
	uint64_t other;
	char text[100];
};

int main(int argc, char **argv)
{
	REQUIRE(argc == 3);
	if (strcmp(argv[1], "create") == 0) {
		PMEMobjpool *objects = pmemobj_create(argv[2], "steps", PMEMOBJ_MIN_POOL, 0600);
		REQUIRE(objects != NULL);
		REQUIRE(!OID_IS_NULL(pmemobj_root(objects, sizeof(struct root))));
		pmemobj_close(objects);
		return 0;
	}
	PMEMobjpool *objects = pmemobj_open(argv[2], "steps");
	REQUIRE(objects != NULL);
	PMEMoid root = pmemobj_root(objects, sizeof(struct root));
	struct root *fields = pmemobj_direct(root);
	/* Only the part between the marks is single-stepped: opening the pool takes millions of steps. */
	sfence();
	REQUIRE(write(2, "begin", 5) == 5);
	TX_BEGIN(objects)
	{
		pmemobj_tx_add_range(root, 0, sizeof(struct root));
		fields->value = 7;
		memset(fields->text, 'x', sizeof(fields->text));
	}
	TX_END
	TX_BEGIN(objects)
	{
		pmemobj_tx_add_range_direct(&fields->other, sizeof(fields->other));
		fields->other = 8;
		pmemobj_tx_abort(1);
	}
	TX_END
	REQUIRE(fields->value == 7 && fields->other == 0);
	pmemobj_memset_persist(objects, fields->text, 0x5a, sizeof(fields->text));
	REQUIRE(write(2, "end", 3) == 3);
	pmemobj_close(objects);
	return 0;
}
