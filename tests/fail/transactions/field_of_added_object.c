// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// A field is added, and then again by a macro that adds the field that it sets.
#include "../../programs/objects.h"

POBJ_LAYOUT_BEGIN(fields);
POBJ_LAYOUT_ROOT(fields, struct root);
POBJ_LAYOUT_END(fields);

struct root {
	uint64_t first;
	uint64_t second;
};

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return objects_recover(argv[1]);
	PMEMobjpool *pool = objects_create(argv[1]);
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	TX_BEGIN(pool) {
		TX_ADD_FIELD(root, second);
		TX_ADD_FIELD(root, first);
		D_RW(root)->first = 1;
		TX_SET(root, second, 2); // expect: PF0506
	} TX_END
	pmemobj_close(pool);
	return 0;
}
