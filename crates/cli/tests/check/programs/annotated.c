// Two numbers of one line that belong together, stored one after the other: only a failure between them, which no
// flush marks, shows it. Then a pair on lines of its own, which any failure between its flushes shows. What the
// program says about itself is its second argument.
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
