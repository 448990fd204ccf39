// powerfail: recover = "{bin} {pool} recover"
// powerfail: checker = "{bin} {pool} check"
// Recovery applies a note again that was already applied. That is harmless, because the note contains the
// result, not the amount to add.
#include "../../programs/pm.h"

struct pool {
	uint64_t balance;
	uint64_t deposits PM_LINE;
	uint64_t note PM_LINE;
};

static void set(uint64_t *at, uint64_t value)
{
	*at = value;
	pm_persist(at);
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		if (pool->note) {
			set(&pool->balance, 10 * pool->note);
			set(&pool->deposits, pool->note);
			set(&pool->note, 0);
		}
		return 0;
	}
	if (pm_mode(argc, argv, "check"))
		return pool->balance != 10 * pool->deposits;
	for (uint64_t i = 1; i <= 3; i++) {
		set(&pool->note, i);
		set(&pool->balance, 10 * i);
		set(&pool->deposits, i);
		set(&pool->note, 0);
	}
	return 0;
}
