// powerfail: opt = "-O2"
// Eight elements in one line, flushed one by one after all were stored.
#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	volatile uint64_t *pool = pm_open(argv[1], 4096);
	for (uint64_t i = 0; i < 8; i++)
		pool[i] = i + 1;
	for (int i = 0; i < 8; i++)
		pm_flush(&pool[i]); // expect: PF0501
	pm_fence();
	return 0;
}
