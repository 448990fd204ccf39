/*
 * A pool of libpmemobj in the parts of a pool set. Argument: the file that describes the set. One allocation
 * is larger than the first part, so that both parts are written.
 */
#include <libpmemobj.h>

#include "pool.h"

enum { BLOCK_LEN = 4 << 20, BLOCKS = 5 };

struct root {
	PMEMoid blocks[BLOCKS];
};

int main(int argc, char **argv)
{
	REQUIRE(argc == 2);
	PMEMobjpool *objects = pmemobj_create(argv[1], "set", 0, 0600);
	if (objects == NULL)
		fprintf(stderr, "%s\n", pmemobj_errormsg());
	REQUIRE(objects != NULL);
	struct root *root = pmemobj_direct(pmemobj_root(objects, sizeof(struct root)));
	for (int at = 0; at < BLOCKS; at++) {
		REQUIRE(pmemobj_alloc(objects, &root->blocks[at], BLOCK_LEN, 1, NULL, NULL) == 0);
		char *block = pmemobj_direct(root->blocks[at]);
		pmemobj_memset_persist(objects, block, at + 1, 200);
		/* The end of the block may be in another part than its beginning. */
		store8(block + BLOCK_LEN - 8, (uint64_t)at + 1000);
		pmemobj_persist(objects, block + BLOCK_LEN - 8, 8);
	}
	pmemobj_free(&root->blocks[1]);
	pmemobj_close(objects);
	REQUIRE(pmemobj_check(argv[1], "set") == 1);
	puts("checked");
	return 0;
}
