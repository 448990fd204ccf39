// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// A name is copied into an object after the object was persisted.
#include "../../programs/objects.h"

POBJ_LAYOUT_BEGIN(names);
POBJ_LAYOUT_ROOT(names, struct root);
POBJ_LAYOUT_END(names);

struct root {
	uint64_t id;
	char name[40] PM_LINE;
};

static volatile size_t name_len = 30;

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return objects_recover(argv[1]);
	PMEMobjpool *pool = objects_create(argv[1]);
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	D_RW(root)->id = 1;
	pmemobj_persist(pool, &D_RW(root)->id, sizeof(uint64_t));
	memcpy(D_RW(root)->name, "a name of more than one word..", name_len); // expect: PF0104
	pmemobj_close(pool);
	return 0;
}
