// powerfail: recover = "{bin} {pool} recover"
// Recovery aborts on the pool of an uninterrupted run.
#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	auto *pool = static_cast<std::uint64_t *>(pm_open(argv[1], 4096));
	if (pm_mode(argc, argv, "recover")) {
		if (pool[0] > 3)
			std::abort();
		return 0;
	}
	for (std::uint64_t i = 1; i <= 3; i++) {
		pool[0] = i;
		pm_persist(&pool[0]);
	}
	return 0;
}
