/* What a recording costs before the first operation: a pool of libpmemobj and one transaction. */
#include "map.h"

int main(int argc, char **argv)
{
	(void)argc;
	PMEMobjpool *pool = create_pool(argv[1], "start", 0);
	unsigned long *root = pmemobj_direct(pmemobj_root(pool, sizeof(*root)));
	TX_BEGIN(pool) {
		pmemobj_tx_add_range_direct(root, sizeof(*root));
		*root = 1;
	} TX_END
	printf("%lu\n", *root);
	pmemobj_close(pool);
	return 0;
}
