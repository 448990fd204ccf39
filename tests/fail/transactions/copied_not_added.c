// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// A name is copied into an object in a transaction that has added only the length.
#include "../../programs/objects.h"

POBJ_LAYOUT_BEGIN(names);
POBJ_LAYOUT_ROOT(names, struct root);
POBJ_LAYOUT_END(names);

struct root {
	uint64_t length;
	char name[24];
};

static volatile size_t name_len = 17;

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return objects_recover(argv[1]);
	PMEMobjpool *pool = objects_create(argv[1]);
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	TX_BEGIN(pool) {
		TX_ADD_FIELD(root, length);
		D_RW(root)->length = name_len;
		memcpy(D_RW(root)->name, "a name with zeros", name_len); // expect: PF0304
	} TX_END
	pmemobj_close(pool);
	return 0;
}
