// powerfail: recover = "{bin} {pool} recover"
// powerfail: checker = "{bin} {pool} check"
// A bug that shows only in the result of recovery: it applies a note that was already applied. The repaired
// note contains the result, not the amount to add.
#include "../../programs/pm.h"

struct pool {
	uint64_t balance;
	uint64_t deposits PM_LINE;
	uint64_t note PM_LINE;
};

static void set(uint64_t *at, uint64_t value)
{
	*at = value; // expect: PF0303@deposit
	pm_persist(at);
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		if (pool->note) {
			set(&pool->balance, pool->balance + 10);
			set(&pool->deposits, pool->note);
			set(&pool->note, 0);
		}
		return 0;
	}
	if (pm_mode(argc, argv, "check"))
		return pool->balance != 10 * pool->deposits;
	for (uint64_t i = 1; i <= 3; i++) {
		set(&pool->note, i);
		set(&pool->balance, 10 * i); // expect: PF0303@deposit
		set(&pool->deposits, i);
		set(&pool->note, 0);
	}
	return 0;
}
