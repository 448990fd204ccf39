// Two numbers of one line that must be equal, stored one after the other: only a failure between the two stores
// shows the bug, and there is no flush between them. Then a pair on separate lines: any failure between their
// flushes shows that bug. The second argument selects the annotation.
#include "../../../../../include/powerfail.h"
#include "../../../../../tests/programs/pm.h"

struct pool {
	uint64_t one PM_LINE;
	uint64_t same;
	uint64_t left PM_LINE;
	uint64_t right PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool->one != pool->same || pool->left != pool->right;
	const char *say = argc > 2 ? argv[2] : "";
	powerfail_interest_begin(!strcmp(say, "first"), POWERFAIL_BEFORE);
	pool->one = 1;
	powerfail_failure_point(!strcmp(say, "point"));
	pool->same = 1;
	pm_persist(&pool->one);
	powerfail_interest_end(!strcmp(say, "first"), POWERFAIL_BEFORE);
	powerfail_complete(!strcmp(say, "complete"), POWERFAIL_BEFORE);
	powerfail_skip_failure_begin(!strcmp(say, "skip"));
	powerfail_skip_detection_begin(!strcmp(say, "quiet"), POWERFAIL_BEFORE);
	pool->left = 1;
	pm_persist(&pool->left);
	pool->right = 1;
	pm_persist(&pool->right);
	pm_fence();
	powerfail_skip_detection_end(!strcmp(say, "quiet"), POWERFAIL_BEFORE);
	powerfail_skip_failure_end(!strcmp(say, "skip"));
	return 0;
}
