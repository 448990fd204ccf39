// A constructor sets a member that the body of the same constructor sets again.
#include <new>

#include "../../programs/pm.h"

struct Entry {
	explicit Entry(std::uint64_t key) : key(~0ul) // expect: PF0505@key
	{
		this->key = key; // expect: PF0505@key
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
