// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// A record crosses a line boundary, and both lines are made durable before the flag.
#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

struct record {
	uint64_t words[4];
};

struct pool {
	uint64_t is_valid;
	uint64_t before[6] PM_LINE;
	struct record record;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	struct record *record = &pool->record;
	powerfail_commit_range(&pool->is_valid, sizeof(pool->is_valid), record, sizeof(*record));
	if (pm_mode(argc, argv, "recover")) {
		for (uint64_t i = 0; pool->is_valid && i < 4; i++)
			if (record->words[i] != i + 1)
				return 1;
		return 0;
	}
	for (uint64_t i = 0; i < 4; i++)
		record->words[i] = i + 1;
	pm_flush(record);
	pm_persist(&record->words[3]);
	pool->is_valid = 1;
	pm_persist(&pool->is_valid);
	return 0;
}
