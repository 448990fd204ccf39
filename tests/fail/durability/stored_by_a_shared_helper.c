// powerfail: recover = "{bin} {pool} recover"
// A helper stores the count for two functions, and a version after it. Only one of the functions forgets to persist the
// count: the line to blame is its call.
#include "../../programs/pm.h"

struct bag {
	uint64_t count PM_LINE;
	uint64_t version PM_LINE;
	uint64_t removing PM_LINE;
	uint64_t items[16] PM_LINE;
};

static void put_u64(uint64_t *at, uint64_t value)
{
	*at = value;
}

static void add(struct bag *bag, uint64_t item)
{
	put_u64(&bag->items[bag->count], item);
	pm_persist(&bag->items[bag->count]);
	put_u64(&bag->count, bag->count + 1); // lost: PF0101
	put_u64(&bag->version, bag->version + 1);
	pm_persist(&bag->version);
}

static void remove_last(struct bag *bag)
{
	put_u64(&bag->removing, 1);
	pm_persist(&bag->removing);
	put_u64(&bag->count, bag->count - 1);
	pm_persist(&bag->count);
	put_u64(&bag->version, bag->version - 1);
	pm_persist(&bag->version);
	put_u64(&bag->removing, 0);
	pm_persist(&bag->removing);
}

int main(int argc, char **argv)
{
	struct bag *bag = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return bag->version > bag->count && !bag->removing;
	add(bag, 5);
	add(bag, 6);
	remove_last(bag);
	add(bag, 7);
	return 0;
}
