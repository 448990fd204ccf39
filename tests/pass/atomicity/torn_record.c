// powerfail: recover = "{bin} {pool} recover"
// powerfail: dump = "{bin} {pool} dump"
// powerfail: ack = "^ok"
// Of two records, the one that is not in use is changed, field by field; then the program switches to it.
#include "../../programs/pm.h"

struct record {
	uint64_t name PM_LINE;
	uint64_t price PM_LINE;
};

struct pool {
	uint64_t current;
	struct record records[2];
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	struct record *record = &pool->records[pool->current];
	if (pm_mode(argc, argv, "recover"))
		return pool->current > 1;
	if (pm_mode(argc, argv, "dump")) {
		printf("name %lu price %lu\n", record->name, record->price);
		return 0;
	}
	for (uint64_t i = 1; i <= 3; i++) {
		record = &pool->records[!pool->current];
		record->name = i;
		pm_persist(&record->name);
		record->price = 100 * i;
		pm_persist(&record->price);
		pool->current = !pool->current;
		pm_persist(&pool->current);
		pm_acknowledge(i);
	}
	return 0;
}
