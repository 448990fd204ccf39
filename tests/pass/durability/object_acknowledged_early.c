// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// powerfail: dump = "{bin} {pool} dump"
// powerfail: ack = "ok ([0-9]+)"
// Entries of an object are persisted before they are acknowledged.
#include "../../programs/objects.h"

POBJ_LAYOUT_BEGIN(entries);
POBJ_LAYOUT_ROOT(entries, struct root);
POBJ_LAYOUT_END(entries);

struct entry {
	uint64_t value;
	char rest[120];
};

struct root {
	struct entry entries[3];
};

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return objects_recover(argv[1]);
	int is_dump = pm_mode(argc, argv, "dump");
	PMEMobjpool *pool = is_dump ? objects_open(argv[1]) : objects_create(argv[1]);
	TOID(struct root) root = POBJ_ROOT(pool, struct root);
	for (uint64_t i = 0; i < 3; i++) {
		struct entry *entry = &D_RW(root)->entries[i];
		if (is_dump) {
			if (entry->value)
				printf("%lu\n", entry->value);
			continue;
		}
		entry->value = i + 1;
		pmemobj_persist(pool, &entry->value, sizeof(entry->value));
		pm_acknowledge(i + 1);
	}
	pmemobj_close(pool);
	return 0;
}
