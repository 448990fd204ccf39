// A class keeps its statistics outside of the pool.
#include "../../programs/pm.h"

class Table {
public:
	void put(int index, std::uint64_t value)
	{
		values[index] = value;
		pm_persist(&values[index]);
	}
	void note(std::uint64_t puts) { statistics() = puts; }

private:
	std::uint64_t values[8];
	static std::uint64_t &statistics()
	{
		static std::uint64_t puts;
		return puts;
	}
};

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	auto *table = static_cast<Table *>(pm_open(argv[1], 4096));
	for (int i = 0; i < 3; i++)
		table->put(i, i + 1);
	table->note(3);
	return 0;
}
