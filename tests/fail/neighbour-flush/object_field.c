// powerfail: recover = "{bin} {pool} recover"
// powerfail: needs = "-lpmemobj"
// powerfail: flags = "--deny warnings --only neighbour-flush,durability,redundant-flush"
// Two fields of an object are changed, and one of them is persisted.
#include "../../programs/objects.h"

struct root {
	uint64_t head;
	uint64_t count;
};

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return objects_recover(argv[1]);
	PMEMobjpool *pool = objects_create(argv[1]);
	struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(*root)));
	root->head = 64; // expect: PF0604
	root->count = 1;
	pmemobj_persist(pool, &root->count, sizeof(root->count));
	pmemobj_close(pool);
	return 0;
}
