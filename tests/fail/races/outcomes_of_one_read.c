// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// powerfail: does = "SIGABRT, SIGSEGV, status 1, status 2"
// Recovery reads a record that may not be durable. What it does without the record depends on how far the program went
// on: it aborts, follows a null pointer, or ends with one of two statuses. That is one bug.
#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

struct pool {
	uint64_t valid;
	uint64_t steps PM_LINE;
	uint64_t record PM_LINE;
};

static int recover(const struct pool *pool)
{
	if (!pool->valid || pool->record == 7)
		return 0;
	if (pool->steps == 0)
		abort();
	if (pool->steps == 1)
		return *(volatile int *)(uintptr_t)pool->record;
	return pool->steps == 2 ? 1 : 2;
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	powerfail_commit_range(&pool->valid, sizeof(pool->valid), &pool->record, sizeof(pool->record));
	if (pm_mode(argc, argv, "recover"))
		return recover(pool);
	pool->record = 7; // expect: PF0701
	pool->valid = 1;
	pm_persist(&pool->valid);
	for (uint64_t i = 1; i <= 3; i++) {
		pool->steps = i;
		pm_persist(&pool->steps);
	}
	pm_persist(&pool->record);
	return 0;
}
