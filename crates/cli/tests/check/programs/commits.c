// Programs with and without commit variables, chosen by -DKIND=N. None has a bug.
//
//  1  a log that is valid or not: `valid` decides whether recovery reads it
//  2  two checkpoints: `current` says which of them recovery reads
//  3  plain data, persisted field by field, all of which recovery reads
//  4  as 1, and the fields of plain data in between
#include "../../../../../tests/programs/pm.h"

struct pool {
	uint64_t valid PM_LINE;
	uint64_t log[8] PM_LINE;
	uint64_t data[8] PM_LINE;
	uint64_t current PM_LINE;
	uint64_t checkpoint[2][8] PM_LINE;
	uint64_t plain PM_LINE;
	uint64_t simple PM_LINE;
};

static void log_update(struct pool *pool, uint64_t value)
{
	for (int i = 0; i < 8; i++)
		pool->log[i] = pool->data[i];
	pm_persist(pool->log);
	pool->valid = 1;
	pm_persist(&pool->valid);
	for (int i = 0; i < 8; i++)
		pool->data[i] = value + i;
	pm_persist(pool->data);
	pool->valid = 0;
	pm_persist(&pool->valid);
}

static void log_recover(struct pool *pool)
{
	if (pool->valid) {
		for (int i = 0; i < 8; i++)
			pool->data[i] = pool->log[i];
		pm_persist(pool->data);
		pool->valid = 0;
		pm_persist(&pool->valid);
	}
	printf("%lu\n", (unsigned long)pool->data[7]);
}

static void checkpoint(struct pool *pool, uint64_t value)
{
	uint64_t next = !pool->current;
	for (int i = 0; i < 8; i++)
		pool->checkpoint[next][i] = value + i;
	pm_persist(pool->checkpoint[next]);
	pool->current = next;
	pm_persist(&pool->current);
}

static void plain_update(struct pool *pool, uint64_t value)
{
	pool->plain = value;
	pm_persist(&pool->plain);
	pool->simple = value;
	pm_persist(&pool->simple);
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	int recovers = pm_mode(argc, argv, "recover");
	for (uint64_t value = 10; !recovers && value < 40; value += 10) {
		if (KIND == 1 || KIND == 4)
			log_update(pool, value);
		if (KIND == 2)
			checkpoint(pool, value);
		if (KIND == 3 || KIND == 4)
			plain_update(pool, value);
	}
	if (!recovers)
		return 0;
	if (KIND == 1 || KIND == 4)
		log_recover(pool);
	if (KIND == 2)
		printf("%lu\n", (unsigned long)pool->checkpoint[pool->current][7]);
	if (KIND == 3 || KIND == 4)
		printf("%lu %lu\n", (unsigned long)pool->plain, (unsigned long)pool->simple);
	return 0;
}
