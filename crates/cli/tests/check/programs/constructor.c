// A constructor whose object is in use before its length is set. In a new file, the length happens to be
// zero; in memory that was used before, it is arbitrary.
#include "../../../../../tests/programs/pm.h"

struct pool {
	uint64_t in_use;
	uint64_t length PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool->in_use == 1 && pool->length > 100;
	pool->in_use = 1;
	pm_persist(&pool->in_use);
	pool->length = 0;
	pm_persist(&pool->length);
	return 0;
}
