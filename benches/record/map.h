/* Shared by the maps: a pool, and keys in a scattered order. */
#include <libpmemobj.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline unsigned long key_of(long i) { return (unsigned long)i * 2654435761ul % 4294967291ul; }

static PMEMobjpool *create_pool(const char *path, const char *layout, long operations)
{
	PMEMobjpool *pool =
		pmemobj_create(path, layout, (64ul << 20) + (unsigned long)operations * 512, 0666);
	if (pool == NULL) {
		perror(path);
		exit(1);
	}
	return pool;
}
