// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// A record is durable before its number.
#include "../../programs/pm.h"

enum { RECORDS = 20, CHECKPOINT = 13 };

struct pool {
	uint64_t count;
	uint64_t records[RECORDS][8] PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		uint64_t count = pool->count;
		if (count == 0)
			return 0;
		return pool->records[count - 1][0] == 0 && count == CHECKPOINT;
	}
	for (uint64_t number = 0; number < RECORDS; number++) {
		pool->records[number][0] = number + 100;
		pm_persist(pool->records[number]);
		pool->count = number + 1; // warning: PF0701
		pm_persist(&pool->count);
	}
	return 0;
}
