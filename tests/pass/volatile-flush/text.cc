// The characters of a std::string are copied into the pool, and only the pool is flushed.
#include <string>

#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	auto *pool = static_cast<char *>(pm_open(argv[1], 4096));
	std::string text = "a text that is long enough for the heap";
	std::memcpy(pool, text.data(), 8);
	pm_flush(pool);
	pm_fence();
	return 0;
}
