// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--fill 0xcc"
// A constructor clears fresh memory, which is arbitrary, and flushes it before the object is in use.
#include "../../programs/pm.h"

struct table {
	uint64_t used;
	uint64_t slots[4];
} PM_LINE;

struct pool {
	uint64_t made;
	struct table table;
};

static void construct(struct table *table)
{
	table->used = 0;
	for (int i = 0; i < 4; i++)
		table->slots[i] = 0;
	pm_persist(table);
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool->made == 1 && pool->table.used > 4;
	construct(&pool->table);
	pool->made = 1;
	pm_persist(&pool->made);
	return 0;
}
