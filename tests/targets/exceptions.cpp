// Exceptions that unwind through functions that store to a pool, with destructors that store, too.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

#include "pool.h"

namespace {

std::uint64_t *pool;
std::uint64_t used;

void note(std::uint64_t value)
{
	volatile std::uint64_t *place = &pool[used++];
	*place = value;
	flush(place);
	sfence();
}

struct Guard {
	explicit Guard(std::uint64_t id) : id(id) { note(id); }
	~Guard() { note(id | 1UL << 32); }
	std::uint64_t id;
};

int dive(int depth, int bottom)
{
	Guard guard(static_cast<std::uint64_t>(depth));
	if (depth == bottom)
		throw std::runtime_error("bottom " + std::to_string(bottom));
	try {
		return dive(depth + 1, bottom) + 1;
	} catch (const std::runtime_error &) {
		note(1000 + static_cast<std::uint64_t>(depth));
		if (depth % 3 == 0)
			throw std::logic_error("changed at " + std::to_string(depth));
		throw;
	}
}

} // namespace

int main(int argc, char **argv)
{
	REQUIRE(argc == 2);
	pool = reinterpret_cast<std::uint64_t *>(map_pool(argv[1], MIB));
	int caught = 0;
	for (int bottom = 1; bottom < 20; bottom++) {
		try {
			dive(1, bottom);
		} catch (const std::exception &error) {
			caught++;
			std::string text = error.what();
			std::memcpy(&pool[used], text.data(), text.size());
			used += 8;
		}
	}
	std::printf("%d %lu\n", caught, used);
}
