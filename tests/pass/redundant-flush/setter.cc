// Each setter flushes, and the caller does not.
#include "../../programs/pm.h"

class Setting {
public:
	void set(std::uint64_t to)
	{
		value = to;
		pm_flush(&value);
	}

private:
	std::uint64_t value;
};

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	auto *settings = static_cast<Setting *>(pm_open(argv[1], 4096));
	settings[0].set(1);
	pm_fence();
	return 0;
}
