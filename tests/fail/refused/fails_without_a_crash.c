// powerfail: refused
// powerfail: recover = "{bin} {pool} recover"
// Recovery refuses even the pool that an undisturbed run leaves: the set-up is wrong, not the program.
#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	uint64_t *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool[0] != 4;
	for (uint64_t i = 1; i <= 3; i++) {
		pool[0] = i;
		pm_persist(&pool[0]);
	}
	return 0;
}
