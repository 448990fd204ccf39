/* Atomic lists and allocations of libpmemobj, small and large. */
#include <libpmemobj.h>

#include "pool.h"

POBJ_LAYOUT_BEGIN(list);
POBJ_LAYOUT_ROOT(list, struct root);
POBJ_LAYOUT_TOID(list, struct node);
POBJ_LAYOUT_END(list);

struct node {
	uint64_t value;
	POBJ_LIST_ENTRY(struct node) entry;
};

POBJ_LIST_HEAD(nodes, struct node);

struct root {
	struct nodes nodes;
	struct nodes others;
	PMEMoid blob;
};

static int construct(PMEMobjpool *objects, void *at, void *value)
{
	struct node *node = at;
	node->value = *(uint64_t *)value;
	pmemobj_persist(objects, &node->value, sizeof(node->value));
	return 0;
}

int main(int argc, char **argv)
{
	REQUIRE(argc == 2);
	PMEMobjpool *objects =
		pmemobj_create(argv[1], POBJ_LAYOUT_NAME(list), 2 * PMEMOBJ_MIN_POOL, 0600);
	REQUIRE(objects != NULL);
	TOID(struct root) root = POBJ_ROOT(objects, struct root);
	struct root *lists = D_RW(root);
	for (uint64_t value = 0; value < 200; value++) {
		if (value % 2)
			POBJ_LIST_INSERT_NEW_HEAD(objects, &lists->nodes, entry, sizeof(struct node), construct,
						  &value);
		else
			POBJ_LIST_INSERT_NEW_TAIL(objects, &lists->nodes, entry, sizeof(struct node), construct,
						  &value);
		if (value % 5 == 4)
			POBJ_LIST_REMOVE_FREE(objects, &lists->nodes, POBJ_LIST_FIRST(&lists->nodes), entry);
		if (value % 7 == 6)
			POBJ_LIST_MOVE_ELEMENT_TAIL(objects, &lists->nodes, &lists->others,
						    POBJ_LIST_LAST(&lists->nodes, entry), entry, entry);
	}
	for (size_t len = 64; len <= MIB / 2; len *= 4) {
		REQUIRE(pmemobj_zalloc(objects, &lists->blob, len, 7) == 0);
		pmemobj_memset_persist(objects, pmemobj_direct(lists->blob), 0x5a, len < 65536 ? len : 65536);
		REQUIRE(pmemobj_realloc(objects, &lists->blob, len + len / 2, 7) == 0);
		pmemobj_free(&lists->blob);
	}
	uint64_t count = 0, sum = 0;
	TOID(struct node) node;
	POBJ_LIST_FOREACH(node, &lists->nodes, entry)
		count++, sum += D_RO(node)->value;
	POBJ_LIST_FOREACH(node, &lists->others, entry)
		count++, sum += 1000 * D_RO(node)->value;
	printf("%lu %lu\n", count, sum);
	pmemobj_close(objects);
	return 0;
}
