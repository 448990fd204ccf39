// powerfail: recover = "{bin} {pool} recover"
// In the last iteration the fence comes before the flush, so it does not wait for this flush.
#include "../../programs/pm.h"

struct slot {
	uint64_t value;
} PM_LINE;

int main(int argc, char **argv)
{
	struct slot *slots = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return slots[0].value > 1;
	slots[0].value = 1; // may: PF0201
	pm_flush(&slots[0]);
	slots[1].value = 2; // expect: PF0102@last
	pm_fence();
	pm_flush(&slots[1]); // expect: PF0102@last
	_exit(0);
}
