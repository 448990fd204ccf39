// powerfail: recover = "{bin} {pool} recover"
// powerfail: dump = "{bin} {pool} dump"
// powerfail: ack = "ok (\d+)"
// Operations are made durable four at a time, and then acknowledged.
#include "../../programs/pm.h"

struct slot {
	uint64_t number;
} PM_LINE;

int main(int argc, char **argv)
{
	struct slot *slots = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return 0;
	if (pm_mode(argc, argv, "dump")) {
		for (int i = 0; i < 8; i++)
			if (slots[i].number)
				printf("%lu\n", slots[i].number);
		return 0;
	}
	for (uint64_t i = 0; i < 8; i++) {
		slots[i].number = 200 + i;
		if (i % 4 == 3) {
			pm_flush_range(&slots[i - 3], 4 * sizeof(slots[0]));
			pm_fence();
			for (uint64_t done = i - 3; done <= i; done++)
				pm_acknowledge(200 + done);
		}
	}
	return 0;
}
