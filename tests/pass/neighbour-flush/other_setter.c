// powerfail: flags = "--deny warnings --only neighbour-flush,durability,redundant-flush"
// Two setters, and each flushes its own field.
#include "../../programs/pm.h"

struct account {
	uint64_t owner;
	uint64_t balance;
};

__attribute__((noinline)) static void set_owner(struct account *account, uint64_t owner)
{
	account->owner = owner;
	pm_persist(&account->owner);
}

__attribute__((noinline)) static void set_balance(struct account *account, uint64_t balance)
{
	account->balance = balance;
	pm_persist(&account->balance);
}

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	struct account *account = pm_open(argv[1], 4096);
	set_owner(account, 5);
	set_balance(account, 100);
	return 0;
}
