// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// A flag is durable before its record.
#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

struct pool {
	uint64_t is_valid;
	uint64_t record[2] PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	powerfail_commit_range(&pool->is_valid, sizeof(pool->is_valid), pool->record, sizeof(pool->record));
	if (pm_mode(argc, argv, "recover"))
		return pool->is_valid && pool->record[0] + pool->record[1] != 100;
	pool->record[0] = 30; // expect: PF0701@record
	pool->record[1] = 70; // expect: PF0701@record
	pool->is_valid = 1;
	pm_persist(&pool->is_valid);
	pm_persist(pool->record);
	return 0;
}
