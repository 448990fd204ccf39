// powerfail: flags = "--deny warnings"
// Two lines, each with its own fence.
#include "../../programs/pm.h"

struct slot {
	uint64_t value;
} PM_LINE;

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	struct slot *slots = pm_open(argv[1], 4096);
	slots[0].value = 1;
	pm_flush(&slots[0]);
	pm_fence();
	slots[1].value = 2;
	pm_flush(&slots[1]);
	pm_fence();
	return 0;
}
