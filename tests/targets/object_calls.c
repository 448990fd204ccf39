/*
 * One call of libpmemobj on each line, so that its record can be identified by its line. Argument: the pool.
 * With -DPLUGIN it is a library that others load.
 */
#include <libpmemobj.h>
#include <stdint.h>
#include <string.h>
#include <wchar.h>

#include "pool.h"

struct item;
TOID_DECLARE(struct item, 4);

struct item {
	uint64_t value;
	POBJ_LIST_ENTRY(struct item) links;
};

struct root {
	uint64_t first, second;
	POBJ_LIST_HEAD(items, struct item) items;
};

static int construct(PMEMobjpool *pool, void *at, void *argument)
{
	*(uint64_t *)at = *(uint64_t *)argument;
	pmemobj_persist(pool, at, sizeof(uint64_t));
	return 0;
}

/* A transaction that the target aborts, and one that the library aborts. */
static int aborted(PMEMobjpool *pool, struct root *root)
{
	volatile int count = 0;
	TX_BEGIN(pool) {
		pmemobj_tx_add_range_direct(&root->first, 8);
		root->first = 77;
		pmemobj_tx_abort(5);
	} TX_ONABORT {
		count++;
	} TX_END
	TX_BEGIN(pool) {
		pmemobj_tx_alloc(PMEMOBJ_MAX_ALLOC_SIZE, 1);
	} TX_ONABORT {
		count++;
	} TX_END
	return count;
}

int calls(const char *path)
{
	PMEMobjpool *pool = pmemobj_create(path, "calls", PMEMOBJ_MIN_POOL, 0600);
	REQUIRE(pool);
	PMEMoid id = pmemobj_root(pool, sizeof(struct root));
	struct root *root = pmemobj_direct(id);
	uint64_t seven = 7;
	PMEMoid object;
	struct pobj_action actions[2];

	TX_BEGIN(pool) {
		pmemobj_tx_add_range(id, 0, 8);
		root->first = 1;
		TX_BEGIN(pool) {
			pmemobj_tx_xadd_range_direct(&root->second, 8, POBJ_XADD_NO_FLUSH);
			root->second = 2;
		} TX_END
		object = pmemobj_tx_zalloc(100, 1);
		object = pmemobj_tx_realloc(object, 1000, 1);
		pmemobj_tx_free(object);
		object = pmemobj_tx_strdup("some text", 2);
		object = pmemobj_tx_wcsdup(L"some text", 2);
		pmemobj_reserve(pool, &actions[0], 64, 3);
		pmemobj_tx_publish(actions, 1);
	} TX_END
	REQUIRE(aborted(pool, root) == 2);
	REQUIRE(root->first == 1);

	pmemobj_alloc(pool, &object, 50, 2, construct, &seven);
	pmemobj_free(&object);
	pmemobj_zalloc(pool, &object, 50, 2);
	object = pmemobj_reserve(pool, &actions[0], 64, 3);
	pmemobj_set_value(pool, &actions[1], &root->second, 9);
	pmemobj_publish(pool, actions, 2);
	REQUIRE(root->second == 9);
	pmemobj_reserve(pool, &actions[0], 64, 3);
	pmemobj_cancel(pool, actions, 1);
	pmemobj_list_insert_new(pool, offsetof(struct item, links), &root->items, OID_NULL, 1,
				sizeof(struct item), 4, construct, &seven);
	pmemobj_memset_persist(pool, &root->first, 0, 8);
	pmemobj_close(pool);
	pool = pmemobj_open(path, "calls");
	REQUIRE(pool);
	pmemobj_close(pool);
	return 0;
}

#ifndef PLUGIN
int main(int argc, char **argv)
{
	REQUIRE(argc == 2);
	return calls(argv[1]);
}
#endif
