// A value and the bit that says that it is valid, each on its own line. -DCASE=N selects the bug.
//
//  0  none: the bit is stored when the value is durable
//  1  both are flushed under one fence, and recovery trusts the bit
//  2  the same, but recovery accepts either value
//  3  none, and the bit is annotated as the commit variable of the value
//  4  recovery reads the value whatever the annotated bit says
//  5  the value is stored again, unchanged, and not flushed
//  6  none, and recovery declares its reads of the bit as intended
//  7  as 1, but recovery also fails with all stores in place after the bit is stored
//  8  as 0, but later recovery reports that it waits, and then waits
#include "../../../../../include/powerfail.h"
#include "../../../../../tests/programs/pm.h"

enum { VALUE = 7 };

struct pool {
	uint64_t value PM_LINE;
	uint64_t valid PM_LINE;
	uint64_t unread PM_LINE;
};

static int recover(struct pool *pool)
{
#if CASE == 6
	powerfail_skip_detection_begin(1, POWERFAIL_AFTER);
#endif
	uint64_t valid = pool->valid; // reads the bit
#if CASE == 8
	if (pool->unread == 1) {
		close(open("waiting", O_CREAT | O_WRONLY, 0600));
		for (;;)
			pause();
	}
#endif
#if CASE == 6
	powerfail_skip_detection_end(1, POWERFAIL_AFTER);
#endif
#if CASE == 4
	printf("%d\n", (int)pool->value); // reads what is not committed
	return 0;
#endif
	if (!valid)
		return 0;
	uint64_t value = pool->value; // reads the value
#if CASE == 2
	printf("%d\n", (int)value);
	return 0;
#elif CASE == 7
	return 1 + (value != VALUE);
#else
	return value != VALUE;
#endif
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
#if CASE == 3 || CASE == 4
	powerfail_commit_range(&pool->valid, sizeof(pool->valid), &pool->value, sizeof(pool->value));
#endif
	if (pm_mode(argc, argv, "recover"))
		return recover(pool);
	pool->value = VALUE; // stores the value
#if CASE == 1 || CASE == 2 || CASE == 7
	pm_flush(&pool->value);
	pool->valid = 1; // stores the bit too early
	pm_persist(&pool->valid);
#else
	pm_persist(&pool->value);
#if CASE == 4
	pool->unread = 1;
	pm_persist(&pool->unread); // the value is durable here, and not committed
#endif
	pool->valid = 1; // stores the bit
	pm_persist(&pool->valid);
#endif
#if CASE == 5
	pool->value = VALUE; // stores the value again
	pool->unread = 1;
	pm_persist(&pool->unread);
#endif
#if CASE == 8
	pool->unread = 1;
	pm_persist(&pool->unread);
	pool->unread = 2;
	pm_persist(&pool->unread);
#endif
#if CASE == 7
	pool->valid = 0;
	pm_persist(&pool->valid);
#endif
	return 0;
}
