// powerfail: needs = "-lpmem"
// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--timeout 2s"
// Recovery searches for the end of a log: the new end is written before an entry replaces the old one.
#include <libpmem.h>

#include "../../programs/pm.h"

#define END 99

struct slot {
	uint64_t value;
} PM_LINE;

static void set(struct slot *at, uint64_t value)
{
	at->value = value;
	pmem_persist(at, sizeof(at->value));
}

int main(int argc, char **argv)
{
	struct slot *slots = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		if (slots[0].value == 0)
			return 0;
		for (int i = 0; slots[i % 8].value != END; i++)
			usleep(1000);
		return 0;
	}
	set(&slots[0], END);
	for (uint64_t i = 0; i < 3; i++) {
		set(&slots[i + 1], END);
		set(&slots[i], i + 1);
	}
	return 0;
}
