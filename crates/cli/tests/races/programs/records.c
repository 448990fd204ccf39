// Records and their number, flushed under one fence. Recovery skips records that are lost, but not a checkpoint: the
// race exists at every record, and recovery fails at one of them. -DCHECKPOINT=N is the number of that record, from 1;
// with 0 there is none.
#include "../../../../../tests/programs/pm.h"

enum { RECORDS = 40 };

struct pool {
	uint64_t count PM_LINE;
	uint64_t records[RECORDS][8] PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		uint64_t count = pool->count; // reads the number
		if (count == 0)
			return 0;
		uint64_t last = pool->records[count - 1][0]; // reads a record
		return last == 0 && count == CHECKPOINT;
	}
	for (uint64_t number = 0; number < RECORDS; number++) {
		pool->records[number][0] = number + 100; // stores a record
		pm_flush(pool->records[number]);
		pool->count = number + 1; // stores the number
		pm_persist(&pool->count);
	}
	return 0;
}
