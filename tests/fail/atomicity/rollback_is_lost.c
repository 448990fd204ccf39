// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--depth 2"
// Recovery rolls back from a log and then invalidates the log, but does not flush the restored data: a second
// power failure, during recovery, shows the bug.
#include "../../programs/pm.h"

struct pool {
	/* Two numbers whose sum stays zero. */
	uint64_t left;
	uint64_t right PM_LINE;
	uint64_t old_left PM_LINE;
	uint64_t old_right;
	uint64_t is_logged PM_LINE;
};

static void roll_back(struct pool *pool)
{
	pool->left = pool->old_left; // lost: PF0301@sides
	pool->right = pool->old_right; // lost: PF0301@sides
	pool->is_logged = 0;
	pm_persist(&pool->is_logged);
}

static void move(struct pool *pool, uint64_t amount)
{
	pool->old_left = pool->left;
	pool->old_right = pool->right;
	pm_persist(&pool->old_left);
	pool->is_logged = 1;
	pm_persist(&pool->is_logged);
	pool->left += amount;
	pm_persist(&pool->left);
	pool->right -= amount;
	pm_persist(&pool->right);
	pool->is_logged = 0;
	pm_persist(&pool->is_logged);
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		if (pool->is_logged)
			roll_back(pool);
		return pool->left + pool->right != 0;
	}
	move(pool, 30);
	return 0;
}
