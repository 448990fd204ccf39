// powerfail: recover = "{bin} {pool} recover"
// An mfence after an sfence: in a program with one thread it has nothing to order.
#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	uint64_t *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool[0] > 3;
	for (uint64_t i = 1; i <= 3; i++) {
		pool[0] = i;
		pm_persist(pool);
		__asm__ volatile("mfence" ::: "memory"); // expect: PF0502
	}
	return 0;
}
