// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// Of two objects that point to each other, only one is persisted.
#include "../../programs/objects.h"

POBJ_LAYOUT_BEGIN(pairs);
POBJ_LAYOUT_ROOT(pairs, struct root);
POBJ_LAYOUT_TOID(pairs, struct half);
POBJ_LAYOUT_END(pairs);

struct half {
	uint64_t other;
	uint64_t room[15];
};

struct root {
	TOID(struct half) halves[2];
};

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return objects_recover(argv[1]);
	PMEMobjpool *pool = objects_create(argv[1]);
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	for (int i = 0; i < 2; i++)
		POBJ_ZNEW(pool, &D_RW(root)->halves[i], struct half);
	TOID(struct half) first = D_RO(root)->halves[0], second = D_RO(root)->halves[1];
	D_RW(first)->other = second.oid.off;
	pmemobj_persist(pool, D_RW(first), sizeof(uint64_t));
	D_RW(second)->other = first.oid.off; // expect: PF0104
	pmemobj_close(pool);
	return 0;
}
