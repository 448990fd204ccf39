// powerfail: opt = "-O2"
// powerfail: flags = "--deny warnings"
// A loop flushes and fences in each iteration.
#include "../../programs/pm.h"

struct slot {
	uint64_t value;
} PM_LINE;

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	volatile struct slot *slots = pm_open(argv[1], 4096);
	for (uint64_t i = 0; i < 3; i++) {
		slots[i].value = i + 1;
		pm_flush(&slots[i]);
		pm_fence();
	}
	return 0;
}
