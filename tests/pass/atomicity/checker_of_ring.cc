// powerfail: recover = "{bin} {pool} recover"
// powerfail: checker = "{bin} {pool} check"
// A ring whose entries have ascending numbers; the write position moves last.
#include "../../programs/pm.h"

struct Ring {
	std::uint64_t position;
	std::uint64_t numbers[4] PM_LINE;

	void push(std::uint64_t number)
	{
		numbers[number % 4] = number;
		pm_persist(&numbers[number % 4]);
		position = number;
		pm_persist(&position);
	}
	bool sound() const { return position == 0 || numbers[position % 4] >= position; }
};

int main(int argc, char **argv)
{
	auto *ring = static_cast<Ring *>(pm_open(argv[1], 4096));
	if (pm_mode(argc, argv, "recover"))
		return 0;
	if (pm_mode(argc, argv, "check"))
		return !ring->sound();
	for (std::uint64_t number = 1; number <= 6; number++)
		ring->push(number);
	return 0;
}
