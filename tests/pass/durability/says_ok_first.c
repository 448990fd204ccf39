// powerfail: recover = "{bin} {pool} recover"
// powerfail: dump = "{bin} {pool} dump"
// powerfail: ack = "ok (\d+)"
// Makes a number durable, and acknowledges it afterwards.
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
		for (int i = 0; i < 4 && slots[i].number; i++)
			printf("%lu\n", slots[i].number);
		return 0;
	}
	for (uint64_t i = 0; i < 4; i++) {
		slots[i].number = 100 + i;
		pm_persist(&slots[i]);
		pm_acknowledge(100 + i);
	}
	return 0;
}
