// powerfail: recover = "{bin} {pool} recover"
// powerfail: needs = "-lpmemobj"
// An array is copied to another one, and both are added.
#include "../../programs/objects.h"

struct root {
	uint64_t source[8];
	uint64_t target[8];
};

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return objects_recover(argv[1]);
	PMEMobjpool *pool = objects_create(argv[1]);
	struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(*root)));
	for (uint64_t i = 0; i < 8; i++)
		root->source[i] = i + 1;
	pmemobj_persist(pool, root->source, sizeof(root->source));
	TX_BEGIN(pool) {
		pmemobj_tx_add_range_direct(root->source, sizeof(root->source)); // expect: PF0507
		pmemobj_tx_add_range_direct(root->target, sizeof(root->target));
		for (int i = 0; i < 8; i++)
			root->target[i] = root->source[i];
	} TX_END
	pmemobj_close(pool);
	return 0;
}
