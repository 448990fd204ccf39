// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// A counter in the root object is set outside of transactions and is never made durable.
#include "../../programs/objects.h"

POBJ_LAYOUT_BEGIN(counter);
POBJ_LAYOUT_ROOT(counter, struct root);
POBJ_LAYOUT_END(counter);

struct root {
	uint64_t counter;
};

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return objects_recover(argv[1]);
	PMEMobjpool *pool = objects_create(argv[1]);
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	D_RW(root)->counter = 7; // expect: PF0104
	pmemobj_close(pool);
	return 0;
}
