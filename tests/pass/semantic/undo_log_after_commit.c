// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// Recovery of an undo log restores the backup only if the update is not complete.
#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

enum { IDLE, LOGGED, DONE };

struct pool {
	uint64_t state;
	uint64_t backup PM_LINE;
	uint64_t balance PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	powerfail_commit_range(&pool->state, sizeof(pool->state), &pool->backup, sizeof(pool->backup));
	if (pm_mode(argc, argv, "recover")) {
		if (pool->state == LOGGED) {
			pool->balance = pool->backup;
			pm_persist(&pool->balance);
		}
		return 0;
	}
	pool->backup = pool->balance;
	pm_persist(&pool->backup);
	pool->state = LOGGED;
	pm_persist(&pool->state);
	pool->balance = 20;
	pm_persist(&pool->balance);
	pool->state = DONE;
	pm_persist(&pool->state);
	return 0;
}
