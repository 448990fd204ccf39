/* Every annotation once, in C and in C++, and some that must not be recorded. */
#include "../../include/powerfail.h"
#include "pool.h"

static uint64_t volatile_word;

static void work(char *pool)
{
	char longer[2000];
	memset(longer, 'l', sizeof longer);
	powerfail_commit_variable(pool, 8);
	powerfail_commit_range(pool, 8, pool + 64, 128);
	powerfail_commit_variable(&volatile_word, sizeof volatile_word);
	powerfail_operation_begin(7);
	store8(pool + 64, 1);
	powerfail_failure_point(1);
	powerfail_failure_point(0);
	flush(pool + 64);
	sfence();
	powerfail_operation_end(7);
	powerfail_mark(42, "payload", 7);
	powerfail_mark(43, longer, sizeof longer);
	powerfail_mark(44, NULL, 0);
}

int main(int argc, char **argv)
{
	REQUIRE(argc == 2);
	char *pool = map_pool(argv[1], MIB);
	powerfail_interest_begin(0, POWERFAIL_BEFORE);
	powerfail_interest_begin(1, POWERFAIL_AFTER);
	powerfail_interest_begin(1, POWERFAIL_BEFORE);
	powerfail_skip_failure_begin(1);
	powerfail_skip_failure_end(1);
	powerfail_skip_detection_begin(1, POWERFAIL_BOTH);
	powerfail_skip_detection_end(1, POWERFAIL_BOTH);
	work(pool);
	powerfail_interest_end(1, POWERFAIL_BEFORE);
	powerfail_complete(1, POWERFAIL_BOTH);
	powerfail_complete(1, POWERFAIL_AFTER);
	printf("%d\n", (int)*(volatile uint64_t *)(pool + 64));
	return 0;
}
