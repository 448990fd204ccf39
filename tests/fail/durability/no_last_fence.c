// powerfail: recover = "{bin} {pool} recover"
// The last flush of the program has no fence. It exits immediately: a lock would be a fence.
#include "../../programs/pm.h"

struct pool {
	uint64_t count;
	uint64_t closed PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool->count > 1;
	pool->count = 1;
	pm_persist(&pool->count);
	pool->closed = 1; // expect: PF0102@closed
	pm_flush(&pool->closed); // expect: PF0102@closed
	_exit(0);
}
