// A record is copied out of the pool, and only the original is flushed.
#include "../../programs/pm.h"

struct record {
	uint64_t id;
	uint64_t value;
};

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	struct record *record = pm_open(argv[1], 4096);
	static struct record copy PM_LINE;
	copy = *record;
	copy.value++;
	record->value = copy.value;
	pm_flush(&record->value);
	pm_fence();
	return 0;
}
