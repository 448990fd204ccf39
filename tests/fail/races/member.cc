// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// A constructor flushes a member, and the publisher of the object does not wait for it.
#include <new>

#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

struct Account {
	std::uint64_t balance;

	explicit Account(std::uint64_t first) : balance(first) // expect: PF0701
	{
		pm_flush(this);
	}
};

struct Pool {
	std::uint64_t is_open;
	Account account PM_LINE;
};

int main(int argc, char **argv)
{
	auto *pool = static_cast<Pool *>(pm_open(argv[1], 4096));
	powerfail_commit_range(&pool->is_open, sizeof(pool->is_open), &pool->account, sizeof(pool->account));
	if (pm_mode(argc, argv, "recover"))
		return pool->is_open && pool->account.balance != 500;
	new (&pool->account) Account(500);
	pool->is_open = 1;
	pm_persist(&pool->is_open);
	return 0;
}
