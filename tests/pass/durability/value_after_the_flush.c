// powerfail: recover = "{bin} {pool} recover"
// The value of an entry is stored before the flush of its line, and the entry is published when that is fenced.
#include "../../programs/pm.h"

struct entry {
	uint64_t key PM_LINE;
	uint64_t value;
	uint64_t next;
};

struct pool {
	uint64_t first;
	struct entry entries[8];
};

static struct pool *pool;

static void append(uint64_t key)
{
	struct entry *entry = &pool->entries[key];
	uint64_t *link = &pool->first;
	entry->key = key;
	entry->value = 10 * key;
	pm_flush(&entry->key);
	pm_fence();
	while (*link != 0)
		link = &pool->entries[*link].next;
	*link = key;
	pm_persist(link);
}

int main(int argc, char **argv)
{
	pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		for (uint64_t at = pool->first; at != 0; at = pool->entries[at].next)
			if (pool->entries[at].value != 10 * at)
				abort();
		return 0;
	}
	for (uint64_t key = 1; key <= 4; key++)
		append(key);
	return 0;
}
