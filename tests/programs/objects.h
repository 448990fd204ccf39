/*
 * Shared by the programs with libpmemobj transactions: a pool, and a recovery that only opens it, which rolls
 * back uncommitted transactions.
 */
#ifndef OBJECTS_H
#define OBJECTS_H

#include <libpmemobj.h>

#include "pm.h"

#define OBJECTS_LAYOUT "objects"

static inline PMEMobjpool *objects_create(const char *path)
{
	PMEMobjpool *pool = pmemobj_create(path, OBJECTS_LAYOUT, PMEMOBJ_MIN_POOL, 0600);
	PM_REQUIRE(pool);
	return pool;
}

/* There is nothing to recover from a pool that does not exist yet. */
static inline PMEMobjpool *objects_open(const char *path)
{
	PMEMobjpool *pool = pmemobj_open(path, OBJECTS_LAYOUT);
	if (!pool)
		exit(0);
	return pool;
}

static inline int objects_recover(const char *path)
{
	pmemobj_close(objects_open(path));
	return 0;
}

#endif
