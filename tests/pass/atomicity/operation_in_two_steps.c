// powerfail: recover = "{bin} {pool} recover"
// powerfail: dump = "{bin} {pool} dump"
// An operation moves an amount between two accounts: one store makes both balances valid at once.
#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

struct bank {
	struct {
		uint64_t from;
		uint64_t to;
	} state[2] PM_LINE;
	uint64_t valid PM_LINE;
};

int main(int argc, char **argv)
{
	struct bank *bank = pm_open(argv[1], 4096);
	uint64_t valid = bank->valid;
	if (pm_mode(argc, argv, "recover"))
		return 0;
	if (pm_mode(argc, argv, "dump")) {
		printf("%ld %ld\n", (long)bank->state[valid].from, (long)bank->state[valid].to);
		return 0;
	}
	for (uint64_t i = 1; i < 4; i++) {
		powerfail_operation_begin(i);
		bank->state[!valid].from = bank->state[valid].from - i;
		bank->state[!valid].to = bank->state[valid].to + i;
		pm_persist(&bank->state[!valid]);
		valid = !valid;
		bank->valid = valid;
		pm_persist(&bank->valid);
		powerfail_operation_end(i);
	}
	return 0;
}
