// Constructors of a class and of its base set the pointer to the virtual functions, one after the other. It means nothing
// in the next run, so only the member that is set twice is wrong.
#include <new>

#include "../../programs/pm.h"

struct Shape {
	virtual std::uint64_t corners() const { return 0; }
	std::uint64_t size;
};

struct Square : Shape {
	explicit Square(std::uint64_t width)
	{
		size = 1; // expect: PF0505@size
		size = width; // expect: PF0505@size
		pm_persist(this);
	}
	std::uint64_t corners() const override { return 4; }
};

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	void *pool = pm_open(argv[1], 4096);
	new (pool) Square(7);
	return 0;
}
