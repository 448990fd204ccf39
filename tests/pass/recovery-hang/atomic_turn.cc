// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--timeout 2s"
// Recovery serves the open ticket itself, because the thread that would serve it no longer exists.
#include <atomic>

#include "../../programs/pm.h"

struct Pool {
	std::uint64_t tickets;
	alignas(64) std::uint64_t served;
};

int main(int argc, char **argv)
{
	auto *pool = static_cast<Pool *>(pm_open(argv[1], 4096));
	if (pm_mode(argc, argv, "recover")) {
		pool->served = pool->tickets;
		pm_persist(&pool->served);
		std::atomic_ref<std::uint64_t> served(pool->served);
		while (served.load() != pool->tickets)
			usleep(1000);
		return 0;
	}
	for (std::uint64_t i = 1; i <= 2; i++) {
		pool->tickets = i;
		pm_persist(&pool->tickets);
		pool->served = i;
		pm_persist(&pool->served);
	}
	return 0;
}
