// powerfail: recover = "{bin} {pool} recover"
// The exception path flushes, too.
#include <stdexcept>

#include "../../programs/pm.h"

struct Pool {
	std::uint64_t done;
	std::uint64_t failed;
};

static void work(int number)
{
	if (number == 3)
		throw std::runtime_error("the third one fails");
}

int main(int argc, char **argv)
{
	auto *pool = static_cast<Pool *>(pm_open(argv[1], 4096));
	if (pm_mode(argc, argv, "recover"))
		return pool->done > 3;
	for (int number = 1; number <= 3; number++) {
		try {
			work(number);
			pool->done = number;
			pm_persist(&pool->done);
		} catch (const std::runtime_error &) {
			pool->failed = number;
			pm_persist(&pool->failed);
		}
	}
	return 0;
}
