// powerfail: recover = "{bin} {pool} recover"
// A guard sets a flag during a change, and recovery clears it. An exception in the first change shows that
// destructors store, too.
#include <stdexcept>

#include "../../programs/pm.h"

struct Pool {
	std::uint64_t busy;
	std::uint64_t value PM_LINE;
};

class Guard {
public:
	explicit Guard(Pool *pool) : pool(pool)
	{
		pool->busy = 1;
		pm_persist(&pool->busy);
	}
	~Guard()
	{
		pool->busy = 0;
		pm_persist(&pool->busy);
	}

private:
	Pool *pool;
};

static void change(Pool *pool, std::uint64_t value)
{
	Guard guard(pool);
	if (value == 1)
		throw std::runtime_error("not this one");
	pool->value = value;
	pm_persist(&pool->value);
}

int main(int argc, char **argv)
{
	auto *pool = static_cast<Pool *>(pm_open(argv[1], 4096));
	if (pm_mode(argc, argv, "recover")) {
		pool->busy = 0;
		pm_persist(&pool->busy);
		return pool->busy != 0;
	}
	for (std::uint64_t value = 1; value <= 3; value++) {
		try {
			change(pool, value);
		} catch (const std::runtime_error &) {
		}
	}
	return 0;
}
