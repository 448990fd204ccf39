// Like many.c, but program and recovery execute one step at a time: they write a byte to the pipe `arrived` and
// wait for a byte from the pipe `go`. Recovery leaves a process in another session, which never ends by itself, unless
// ALONE is defined.
#include "../../../../../tests/programs/pm.h"

struct pool {
	uint64_t count;
	uint64_t copy PM_LINE;
};

static void step(void)
{
	char byte = 0;
	int arrived = open("arrived", O_WRONLY);
	int go = open("go", O_RDONLY);
	if (write(arrived, &byte, 1) != 1 || read(go, &byte, 1) != 1)
		_exit(9);
	close(arrived);
	close(go);
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
#ifndef ALONE
		if (fork() == 0) {
			setsid();
			for (;;)
				pause();
		}
#endif
		step();
		return pool->copy != pool->count;
	}
	for (uint64_t i = 1; i <= 24; i++) {
		step();
		pool->count = i;
		pm_persist(&pool->count);
		pool->copy = i;
		pm_persist(&pool->copy);
	}
	return 0;
}
