// powerfail: recover = "{bin} {pool} recover"
// The program flushes the link to a record, which is unchanged, instead of the record.
#include "../../programs/pm.h"

struct record {
	uint64_t value;
} PM_LINE;

struct pool {
	uint64_t version;
	uint64_t current PM_LINE;
	struct record records[4];
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool->version > pool->records[pool->current].value;
	pool->current = 2;
	pm_persist(&pool->current);
	for (uint64_t version = 1; version <= 2; version++) {
		struct record *record = &pool->records[pool->current];
		record->value = version; // lost: PF0201
		pm_flush(&pool->current);
		pm_fence();
		pool->version = version;
		pm_persist(&pool->version);
		pm_persist(record);
	}
	return 0;
}
