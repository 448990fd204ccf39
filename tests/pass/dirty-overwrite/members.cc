// A constructor sets a member once, in its body.
#include <new>

#include "../../programs/pm.h"

struct Entry {
	explicit Entry(std::uint64_t key)
	{
		this->key = key;
		pm_persist(this);
	}
	std::uint64_t key;
};

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	void *pool = pm_open(argv[1], 4096);
	new (pool) Entry(7);
	return 0;
}
