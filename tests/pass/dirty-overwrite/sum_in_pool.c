// powerfail: opt = "-O2"
// A sum is accumulated in a register and stored once.
#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	volatile uint64_t *pool = pm_open(argv[1], 4096);
	uint64_t sum = 0;
	for (uint64_t i = 1; i <= 4; i++) {
		sum += i;
	}
	pool[0] = sum;
	pm_persist(&pool[0]);
	return 0;
}
