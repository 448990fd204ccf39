#include "transaction.h"

#include <stdlib.h>

/* The ranges that belong to the transaction. */
static struct range {
	char *first, *end;
} *owned;
static size_t owned_count, owned_capacity;

static void remember(void *object, size_t size)
{
	if (owned_count == owned_capacity) {
		owned_capacity = owned_capacity ? 2 * owned_capacity : 64;
		owned = realloc(owned, owned_capacity * sizeof(*owned));
		require(owned != NULL, "no memory");
	}
	owned[owned_count++] = (struct range){object, (char *)object + size};
}

void tx_begin(void)
{
	require(pmemobj_tx_begin(pool, NULL, TX_PARAM_NONE) == 0, "no transaction");
	owned_count = 0;
}

void tx_commit(void)
{
	pmemobj_tx_commit();
	require(pmemobj_tx_end() == 0, "transaction failed");
}

void tx_own(void *object, size_t size)
{
	char *first = object;
	for (size_t i = 0; i < owned_count; i++)
		if (owned[i].first <= first && first + size <= owned[i].end)
			return;
	remember(object, size);
	tx_add(object, size);
}

void *tx_new(size_t size)
{
	PMEMoid object = pmemobj_tx_zalloc(size, 1);
	require(!OID_IS_NULL(object), "the pool is full");
	remember(pmemobj_direct(object), size);
	return pmemobj_direct(object);
}

void tx_free(offset object)
{
	pmemobj_tx_free(pmemobj_oid(at(object)));
}
