// A guard fences in its destructor if something was flushed.
#include "../../programs/pm.h"

struct Guard {
	bool flushed = false;
	~Guard()
	{
		if (flushed)
			pm_fence();
	}
};

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	auto *pool = static_cast<std::uint64_t *>(pm_open(argv[1], 4096));
	for (std::uint64_t i = 0; i < 4; i++) {
		Guard guard;
		if (i % 2 == 0) {
			pool[i] = i + 1;
			pm_flush(&pool[i]);
			guard.flushed = true;
		}
	}
	return 0;
}
