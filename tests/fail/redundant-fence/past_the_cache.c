// powerfail: opt = "-O2"
// powerfail: recover = "{bin} {pool} recover"
// Non-temporal stores need a fence, but one is enough.
#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	uint64_t *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool[7] != 0 && pool[7] != 8;
	for (int i = 0; i < 8; i++)
		pm_store_past_cache(&pool[i], i + 1);
	pm_fence();
	pm_fence(); // expect: PF0502
	return 0;
}
