// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// The constructor of an object persists its number, but not what comes after it: a name that is never read, and a link in
// the next line, which recovery follows. That is one bug.
#include "../../programs/objects.h"

struct entry {
	uint64_t number;
	uint64_t twice;
	char name[96];
	PMEMoid next;
};

struct root {
	PMEMoid first;
	uint64_t count PM_LINE;
};

static int construct(PMEMobjpool *pool, void *memory, void *first)
{
	struct entry *entry = memory;
	entry->number = 5;
	entry->twice = 10;
	memset(entry->name, 'n', sizeof(entry->name));
	entry->next = *(PMEMoid *)first; // lost: PF0101
	pmemobj_persist(pool, entry, 2 * sizeof(uint64_t));
	return 0;
}

static uint64_t length(const struct root *root)
{
	uint64_t count = 0;
	for (PMEMoid at = root->first; !OID_IS_NULL(at); count++)
		at = ((struct entry *)pmemobj_direct(at))->next;
	return count;
}

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover")) {
		PMEMobjpool *pool = objects_open(argv[1]);
		struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
		int is_short = length(root) < root->count;
		pmemobj_close(pool);
		return is_short;
	}
	PMEMobjpool *pool = objects_create(argv[1]);
	struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
	for (uint64_t i = 1; i <= 2; i++) {
		PMEMoid first = root->first;
		PM_REQUIRE(pmemobj_alloc(pool, &root->first, sizeof(struct entry), 1, construct, &first) == 0);
		root->count = i;
		pmemobj_persist(pool, &root->count, sizeof(root->count));
	}
	pmemobj_close(pool);
	return 0;
}
