// powerfail: recover = "{bin} {pool} recover"
// Recovery throws an exception if it finds an empty name, and no crash leaves one.
#include <stdexcept>

#include "../../programs/pm.h"

struct Pool {
	std::uint64_t used;
	char names[4][64] PM_LINE;
};

static void recover(const Pool *pool)
{
	for (std::uint64_t i = 0; i < pool->used; i++)
		if (pool->names[i][0] == 0)
			throw std::runtime_error("a name is empty");
}

int main(int argc, char **argv)
{
	auto *pool = static_cast<Pool *>(pm_open(argv[1], 4096));
	if (pm_mode(argc, argv, "recover")) {
		recover(pool);
		return 0;
	}
	for (std::uint64_t i = 0; i < 3; i++) {
		pool->names[i][0] = 'x';
		pm_persist(pool->names[i]);
		pool->used = i + 1;
		pm_persist(&pool->used);
	}
	return 0;
}
