// powerfail: recover = "{bin} {pool} recover"
// powerfail: needs = "-lpmemobj"
// powerfail: flags = "--deny warnings --only neighbour-flush,durability,redundant-flush"
// In the style of PMDK's hashmap_rp: a new object is persisted before it is published.
#include "../../programs/objects.h"

struct map {
	uint64_t count;
	uint64_t capacity;
	uint64_t threshold;
};

struct root {
	PMEMoid map;
};

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return objects_recover(argv[1]);
	PMEMobjpool *pool = objects_create(argv[1]);
	struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(*root)));
	struct pobj_action actions[3];
	PMEMoid oid = pmemobj_reserve(pool, &actions[0], sizeof(struct map), 1);
	struct map *map = pmemobj_direct(oid);
	map->capacity = 16;
	map->threshold = 12;
	pmemobj_persist(pool, map, sizeof(*map));
	pmemobj_set_value(pool, &actions[1], &root->map.pool_uuid_lo, oid.pool_uuid_lo);
	pmemobj_set_value(pool, &actions[2], &root->map.off, oid.off);
	PM_REQUIRE(pmemobj_publish(pool, actions, 3) == 0);
	pmemobj_set_value(pool, &actions[0], &map->count, 1);
	PM_REQUIRE(pmemobj_publish(pool, actions, 1) == 0);
	pmemobj_close(pool);
	return 0;
}
