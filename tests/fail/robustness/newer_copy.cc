// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--deny warnings"
// A value alternates between two copies, each with its own number. The number that selects the copy in use
// becomes durable before the copy. Recovery uses the other copy then.
#include "../../programs/pm.h"

struct Copy {
	std::uint64_t number PM_LINE;
};

struct Pool {
	std::uint64_t in_use PM_LINE;
	Copy copies[2];
};

int main(int argc, char **argv)
{
	auto *pool = static_cast<Pool *>(pm_open(argv[1], 4096));
	if (pm_mode(argc, argv, "recover")) {
		std::uint64_t in_use = pool->in_use;
		std::uint64_t number = pool->copies[in_use % 2].number;
		if (number != in_use)
			number = pool->copies[(in_use + 1) % 2].number;
		return number > 4;
	}
	for (std::uint64_t number = 1; number <= 4; number++) {
		pool->copies[number % 2].number = number; // lost: PF0603
		pool->in_use = number;
		pm_persist(&pool->in_use);
		pm_persist(&pool->copies[number % 2]);
	}
	return 0;
}
