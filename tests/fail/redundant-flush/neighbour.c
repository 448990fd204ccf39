// powerfail: recover = "{bin} {pool} recover"
// A function stores a field, calls another function, which persists its own field of the same line, and flushes its field
// twice.
#include "../../programs/pm.h"

struct account {
	uint64_t balance PM_LINE;
	uint64_t visits;
};

__attribute__((noinline)) static void count_visit(struct account *account)
{
	account->visits = 1;
	pm_persist(&account->visits);
}

__attribute__((noinline)) static void deposit(struct account *account, uint64_t amount)
{
	account->balance = amount;
	count_visit(account);
	pm_persist(&account->balance);
	pm_persist(&account->balance); // expect: PF0501
}

int main(int argc, char **argv)
{
	struct account *account = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return account->visits != 0 && account->balance != 7;
	deposit(account, 7);
	return 0;
}
