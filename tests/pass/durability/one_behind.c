// powerfail: recover = "{bin} {pool} recover"
// powerfail: dump = "{bin} {pool} dump"
// powerfail: ack = "ok (\d+)"
// Each put makes the previous number durable, and acknowledges that one.
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
		for (int i = 0; i < 3; i++)
			if (slots[i].number)
				printf("%lu\n", slots[i].number);
		return 0;
	}
	for (uint64_t i = 0; i < 3; i++) {
		slots[i].number = 10 + i;
		if (i > 0) {
			pm_persist(&slots[i - 1]);
			pm_acknowledge(10 + i - 1);
		}
	}
	pm_persist(&slots[2]);
	pm_acknowledge(12);
	return 0;
}
