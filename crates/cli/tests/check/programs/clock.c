// The time in a pool, where the kernel's library stores it, and a number that read(2) stores. Neither is flushed.
#include <time.h>

#include "../../../../../tests/programs/pm.h"

struct pool {
	struct timespec time;
	PM_LINE uint64_t number;
	PM_LINE uint64_t flag;
};

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	struct pool *pool = pm_open(argv[1], 4096);
	clock_gettime(CLOCK_MONOTONIC, &pool->time); /* the time */
	int fd = open("/dev/zero", O_RDONLY);
	PM_REQUIRE(read(fd, &pool->number, 8) == 8); /* the number */
	pool->flag = 1;
	pm_persist(&pool->flag);
	return 0;
}
