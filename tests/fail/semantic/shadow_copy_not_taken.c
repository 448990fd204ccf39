// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// A shadow copy is made, and then the old copy is committed again.
#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

struct pool {
	uint64_t current;
	struct {
		uint64_t value;
	} PM_LINE copies[2];
	uint64_t value PM_LINE;
};

static void set(uint64_t *at, uint64_t value)
{
	*at = value;
	pm_persist(at);
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	powerfail_commit_range(&pool->current, sizeof(pool->current), pool->copies, sizeof(pool->copies));
	if (pm_mode(argc, argv, "recover")) {
		uint64_t current = pool->current;
		if (current)
			set(&pool->value, pool->copies[current - 1].value);
		return 0;
	}
	pool->copies[0].value = 1; // expect: PF0702
	pm_persist(&pool->copies[0]);
	set(&pool->current, 1);
	pool->copies[1].value = 2;
	pm_persist(&pool->copies[1]);
	set(&pool->current, 1);
	return 0;
}
