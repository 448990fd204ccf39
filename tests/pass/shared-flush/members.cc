// powerfail: flags = "--deny warnings"
// Two members set by one function, each with its own flush.
#include "../../programs/pm.h"

class Span {
public:
	void set(std::uint64_t from, std::uint64_t to)
	{
		begin = from;
		pm_persist(&begin);
		end = to;
		pm_persist(&end);
	}

private:
	std::uint64_t begin, end;
};

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	static_cast<Span *>(pm_open(argv[1], 4096))->set(1, 9);
	return 0;
}
