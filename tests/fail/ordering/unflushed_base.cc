// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--fill 0xcc"
// The constructor of a class flushes its own members but not those of its base class, which are on another line.
#include <new>

#include "../../programs/pm.h"

class Counted {
public:
	Counted() : references(0) // lost: PF0201
	{
	}
	std::uint64_t references PM_LINE;
};

class Leaf : public Counted {
public:
	explicit Leaf(std::uint64_t value) : value(value)
	{
		pm_persist(&this->value);
	}
	std::uint64_t value PM_LINE;
};

struct Pool {
	std::uint64_t is_made PM_LINE;
	Leaf leaf;
};

int main(int argc, char **argv)
{
	auto *pool = static_cast<Pool *>(pm_open(argv[1], 4096));
	if (pm_mode(argc, argv, "recover"))
		return pool->is_made == 1 && (pool->leaf.references != 0 || pool->leaf.value != 5);
	new (&pool->leaf) Leaf(5);
	pool->is_made = 1;
	pm_persist(&pool->is_made);
	pm_persist(&pool->leaf.references);
	return 0;
}
