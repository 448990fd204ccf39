// powerfail: recover = "{bin} {pool} recover"
// For a power failure, two atomics are two stores. Recovery accepts the state between them.
#include <atomic>

#include "../../programs/pm.h"

struct Pool {
	std::atomic<std::uint64_t> begin;
	alignas(64) std::atomic<std::uint64_t> end;
};

int main(int argc, char **argv)
{
	auto *pool = static_cast<Pool *>(pm_open(argv[1], 4096));
	if (pm_mode(argc, argv, "recover")) {
		std::uint64_t length = pool->end - pool->begin;
		return length != 0 && length != 10 && length != 11;
	}
	pool->end.store(10, std::memory_order_release);
	pm_persist(&pool->end);
	for (std::uint64_t i = 1; i <= 3; i++) {
		pool->end.store(10 + i, std::memory_order_release);
		pm_persist(&pool->end);
		pool->begin.store(i, std::memory_order_release);
		pm_persist(&pool->begin);
	}
	return 0;
}
