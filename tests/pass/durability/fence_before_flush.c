// powerfail: recover = "{bin} {pool} recover"
// Each flush is followed by a fence that waits for it.
#include "../../programs/pm.h"

struct slot {
	uint64_t value;
} PM_LINE;

int main(int argc, char **argv)
{
	struct slot *slots = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return slots[0].value > 1;
	slots[0].value = 1;
	pm_flush(&slots[0]);
	pm_fence();
	slots[1].value = 2;
	pm_flush(&slots[1]);
	pm_fence();
	_exit(0);
}
