// powerfail: needs = "-lpmem"
// A buffer on the heap is copied into the pool, and only the pool is flushed.
#include <libpmem.h>

#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	char *pool = pm_open(argv[1], 4096);
	char *buffer = calloc(1, 64);
	PM_REQUIRE(buffer);
	buffer[0] = 'b';
	pmem_memcpy_persist(pool, buffer, 8);
	free(buffer);
	return 0;
}
