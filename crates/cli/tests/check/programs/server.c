// A server that stores a value in its pool, reports that it is ready, and waits until a signal ends it. It is also
// its own recovery.
#include "../../../../../tests/programs/pm.h"

struct pool {
	uint64_t value;
};

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	struct pool *pool = pm_open(argv[1], 4096);
	pool->value = 1;
	pm_persist(&pool->value);
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}
