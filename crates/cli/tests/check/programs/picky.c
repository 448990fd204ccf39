// Many lines, of which recovery reads one. It accepts only what the workload has stored there, and zeros.
#include "../../../../../tests/programs/pm.h"

struct pool {
	struct {
		uint64_t value PM_LINE;
	} lines[64];
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], sizeof(*pool));
	if (argc > 2)
		return pool->lines[20].value > 1;
	for (int line = 0; line < 64; line++) {
		pool->lines[line].value = 1;
		pm_persist(&pool->lines[line].value);
	}
	return 0;
}
