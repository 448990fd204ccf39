// powerfail: flags = "--deny warnings"
// A put that fences by itself.
#include "../../programs/pm.h"

struct Slot {
	std::uint64_t value;

	void put(std::uint64_t to)
	{
		value = to;
		pm_flush(&value);
		pm_fence();
	}
} PM_LINE;

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	auto *slots = static_cast<Slot *>(pm_open(argv[1], 4096));
	slots[0].put(1);
	slots[1].put(2);
	return 0;
}
