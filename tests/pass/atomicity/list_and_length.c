// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// A list of the atomic interface, and its length beside it. Recovery counts again.
#include <libpmemobj.h>

#include "../../programs/pm.h"

POBJ_LAYOUT_BEGIN(list);
POBJ_LAYOUT_ROOT(list, struct root);
POBJ_LAYOUT_TOID(list, struct entry);
POBJ_LAYOUT_END(list);

struct entry {
	uint64_t number;
	POBJ_LIST_ENTRY(struct entry) entries;
};

struct root {
	POBJ_LIST_HEAD(all, struct entry) head;
	uint64_t len PM_LINE;
};

static int construct(PMEMobjpool *pool, void *at, void *argument)
{
	struct entry *entry = at;
	entry->number = *(uint64_t *)argument;
	pmemobj_persist(pool, &entry->number, sizeof(entry->number));
	return 0;
}

int main(int argc, char **argv)
{
	PMEMobjpool *pool;
	if (pm_mode(argc, argv, "recover")) {
		pool = pmemobj_open(argv[1], POBJ_LAYOUT_NAME(list));
		if (!pool)
			return 0;
		TOID(struct root) root = POBJ_ROOT(pool, struct root);
		TOID(struct entry) entry;
		uint64_t len = 0;
		POBJ_LIST_FOREACH (entry, &D_RO(root)->head, entries)
			len++;
		D_RW(root)->len = len;
		pmemobj_persist(pool, &D_RW(root)->len, sizeof(len));
		int bad = D_RO(root)->len != len;
		pmemobj_close(pool);
		return bad;
	}
	pool = pmemobj_create(argv[1], POBJ_LAYOUT_NAME(list), PMEMOBJ_MIN_POOL, 0600);
	PM_REQUIRE(pool);
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	for (uint64_t i = 1; i <= 3; i++) {
		POBJ_LIST_INSERT_NEW_HEAD(pool, &D_RW(root)->head, entries, sizeof(struct entry), construct, &i);
		D_RW(root)->len = i;
		pmemobj_persist(pool, &D_RW(root)->len, sizeof(uint64_t));
	}
	pmemobj_close(pool);
	return 0;
}
