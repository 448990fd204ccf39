// powerfail: refused
// powerfail: recover = "{bin} {pool} recover"
// Recovery rejects even the pool of an uninterrupted run: the setup is wrong, not the program.
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
