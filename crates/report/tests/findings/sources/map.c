/* A map that counts before it writes. Only an example: it is not compiled. */
#include "map.h"

static inline void set_count(struct map *map, uint64_t count)
{
	map->count = count;
}

void insert(struct map *map, uint64_t key, uint64_t value)
{
	struct entry *entry = &map->entries[map->count];
	entry->key = key;
	entry->value = value;
	pmem_persist(entry, sizeof(*entry)); /* the entry is durable */
	set_count(map, map->count + 1);
	if (map->count > 1)
		pmem_persist(&map->count, sizeof(map->count));
}

int main(int argc, char **argv)
{
	struct map *map = open_map(argv[1]);
	insert(map, 1, 2);
	return 0;
}
