// powerfail: flags = "--deny warnings"
// A put that leaves the fence to its caller.
#include "../../programs/pm.h"

struct Slot {
	std::uint64_t value;

	void put(std::uint64_t to)
	{
		value = to; // expect: PF0602@put
		pm_flush(&value); // expect: PF0602@put
	}
} PM_LINE;

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	auto *slots = static_cast<Slot *>(pm_open(argv[1], 4096));
	slots[0].put(1);
	slots[1].put(2);
	pm_fence(); // expect: PF0602@put
	return 0;
}
