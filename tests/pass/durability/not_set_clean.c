// powerfail: recover = "cat {pool}"
// powerfail: flags = "--valgrind-requests"
// A hint that needs no flush shares a line with durable data, and pmemcheck is told so.
#include "../../programs/pm.h"
#include "../../programs/pmemcheck_requests.h"

struct pool {
	uint64_t value;
	uint64_t hint;
};

int main(int argc, char **argv)
{
	(void)argc;
	struct pool *pool = pm_open(argv[1], 4096);
	pool->value = 1;
	DO_FLUSH(&pool->value, 8);
	DO_FENCE();
	pool->hint = 2;
	SET_CLEAN(&pool->hint, 8);
	return 0;
}
