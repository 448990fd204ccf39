// powerfail: recover = "{bin} {pool} recover"
// powerfail: dump = "{bin} {pool} dump"
// An operation moves an amount between two accounts, and only its annotations declare it as one operation.
#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

struct bank {
	uint64_t from PM_LINE;
	uint64_t to PM_LINE;
};

int main(int argc, char **argv)
{
	struct bank *bank = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return 0;
	if (pm_mode(argc, argv, "dump")) {
		printf("%ld %ld\n", (long)bank->from, (long)bank->to);
		return 0;
	}
	for (uint64_t i = 1; i < 4; i++) {
		powerfail_operation_begin(i);
		bank->from -= i; // expect: PF0302
		pm_persist(&bank->from);
		bank->to += i;
		pm_persist(&bank->to);
		powerfail_operation_end(i);
	}
	return 0;
}
