#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { POOL_BYTES = 8 << 20 };
static const char LAYOUT[] = "kv";

PMEMobjpool *pool;
struct root *root;

void store_open(const char *path)
{
	int exists = access(path, F_OK) == 0;
	pool = exists ? pmemobj_open(path, LAYOUT) : pmemobj_create(path, LAYOUT, POOL_BYTES, 0600);
	if (!pool) {
		fprintf(stderr, "%s: %s\n", path, pmemobj_errormsg());
		exit(2);
	}
	root = pmemobj_direct(pmemobj_root(pool, sizeof(*root)));
}

void store_close(void)
{
	pmemobj_close(pool);
}

void store_broken(const char *what)
{
	fprintf(stderr, "broken: %s\n", what);
	exit(1);
}

int link_is_possible(offset object, size_t size)
{
	return object >= 4096 && object % 8 == 0 && object + size <= POOL_BYTES;
}
