// Stores what differs from run to run, then two numbers that must be equal. Recovery also wants the time and the
// process ids of every run that is derandomised.
#include <sys/random.h>
#include <time.h>

#include "../../../../../tests/programs/pm.h"

struct pool {
	uint64_t process PM_LINE;
	uint64_t seconds, random;
	uint64_t left PM_LINE;
	uint64_t right PM_LINE;
};

static int recover(volatile struct pool *pool)
{
	if (getpid() != 20000 || time(NULL) / 1000 != 1700000)
		return 3;
	return pool->left != pool->right;
}

int main(int argc, char **argv)
{
	volatile struct pool *pool = pm_open(argv[1], 4096);
	uint64_t random;
	if (pm_mode(argc, argv, "recover"))
		return recover(pool);
	PM_REQUIRE(getrandom(&random, sizeof random, 0) == sizeof random);
	pool->process = getpid();
	pool->seconds = time(NULL);
	pool->random = random;
	pm_persist(&pool->process);
	pool->left = 1;
	pm_persist(&pool->left);
	pool->right = 1;
	pm_persist(&pool->right);
	return 0;
}
