// powerfail: recover = "{bin} {pool} recover"
// The length of a list is not flushed the last time it changes, and recovery counts again. In the manner of
// `recover` and `recover_alt` of XFDetector.
#include "../../programs/pm.h"

struct pool {
	uint64_t values[8];
	uint64_t length PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		uint64_t length = 0;
		for (; length < 8 && pool->values[length]; length++)
			if (pool->values[length] != length + 1)
				return 1;
		pool->length = length;
		pm_persist(&pool->length);
		return 0;
	}
	for (uint64_t i = 0; i < 2; i++) {
		pool->values[i] = i + 1;
		pm_persist(&pool->values[i]);
		pool->length = i + 1;
		pm_persist(&pool->length);
	}
	pool->values[2] = 3;
	pm_persist(&pool->values[2]);
	pool->length = 3; // warning: PF0101
	return 0;
}
