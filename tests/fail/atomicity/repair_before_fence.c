// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--depth 2"
// Recovery applies a log and flushes what it writes, but marks the log as applied before the fence: a second power
// failure, during recovery, shows the bug.
#include "../../programs/pm.h"

struct pool {
	/* Two numbers whose sum stays zero. */
	uint64_t left;
	uint64_t right PM_LINE;
	uint64_t new_left PM_LINE;
	uint64_t new_right;
	uint64_t is_logged PM_LINE;
};

static void apply(struct pool *pool)
{
	pool->left = pool->new_left; // lost: PF0301@sides
	pm_flush(&pool->left);
	if (pool->right != pool->new_right) {
		pool->right = pool->new_right; // lost: PF0301@sides
		pm_flush(&pool->right);
	}
	pool->is_logged = 0;
	pm_persist(&pool->is_logged);
}

static void move(struct pool *pool, uint64_t amount)
{
	pool->new_left = pool->left + amount;
	pool->new_right = pool->right - amount;
	pm_persist(&pool->new_left);
	pool->is_logged = 1;
	pm_persist(&pool->is_logged);
	pool->left = pool->new_left;
	pm_flush(&pool->left);
	pool->right = pool->new_right;
	pm_persist(&pool->right);
	pool->is_logged = 0;
	pm_persist(&pool->is_logged);
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		if (pool->is_logged)
			apply(pool);
		return pool->left + pool->right != 0;
	}
	move(pool, 30);
	return 0;
}
