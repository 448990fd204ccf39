// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// The tail of a log says which entries are valid. Recovery only uses checksums, and applies truncated entries.
#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

struct pool {
	uint64_t tail;
	struct {
		uint64_t value;
		uint64_t checksum;
	} PM_LINE entries[2];
	uint64_t home PM_LINE;
};

static uint64_t checksum(uint64_t value)
{
	return value * 0x9e3779b97f4a7c15UL | 1;
}

static void set(uint64_t *at, uint64_t value)
{
	*at = value;
	pm_persist(at);
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	powerfail_commit_range(&pool->tail, sizeof(pool->tail), pool->entries, sizeof(pool->entries));
	if (pm_mode(argc, argv, "recover")) {
		uint64_t tail = 2;
		for (uint64_t i = 0; i < tail; i++) {
			uint64_t value = pool->entries[i].value;
			if (pool->entries[i].checksum == checksum(value))
				set(&pool->home, value);
		}
		return 0;
	}
	for (uint64_t i = 0; i < 2; i++) {
		pool->entries[i].value = 5 + i; // expect: PF0702@record // warning: PF0701@record
		pool->entries[i].checksum = checksum(5 + i); // expect: PF0702@record // warning: PF0701@record
		pm_flush(&pool->entries[i]);
	}
	pm_fence();
	set(&pool->tail, 2);
	set(&pool->home, 6);
	set(&pool->tail, 0);
	return 0;
}
