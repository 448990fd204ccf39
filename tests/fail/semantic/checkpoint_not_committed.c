// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// Recovery uses the checkpoint with the highest number, whether or not it is committed.
#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

struct pool {
	uint64_t committed;
	struct {
		uint64_t number;
		uint64_t value;
	} PM_LINE places[2];
	uint64_t saved PM_LINE;
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
	powerfail_commit_range(&pool->committed, sizeof(pool->committed), pool->places, sizeof(pool->places));
	if (pm_mode(argc, argv, "recover")) {
		uint64_t place = pool->places[0].number < pool->places[1].number;
		if (pool->committed)
			set(&pool->value, pool->places[place].value);
		return 0;
	}
	for (uint64_t i = 1; i <= 2; i++) {
		pool->places[i % 2].value = 10 * i; // expect: PF0702@record
		pool->places[i % 2].number = i; // expect: PF0702@record
		pm_persist(&pool->places[i % 2]);
		set(&pool->saved, i);
		set(&pool->committed, i);
	}
	return 0;
}
