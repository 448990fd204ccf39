// powerfail: opt = "-O2"
// powerfail: recover = "{bin} {pool} recover"
// Eight elements in one line, flushed once after all were stored.
#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	volatile uint64_t *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool[7] != 0 && pool[7] != 8;
	for (uint64_t i = 0; i < 8; i++)
		pool[i] = i + 1;
	pm_flush(&pool[0]);
	pm_fence();
	return 0;
}
