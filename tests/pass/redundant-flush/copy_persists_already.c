// powerfail: needs = "-lpmem"
// pmem_memcpy_persist has already flushed the range.
#include <libpmem.h>

#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	char *pool = pm_open(argv[1], 4096);
	const char text[8] = "text";
	pmem_memcpy_persist(pool, text, sizeof(text));
	return 0;
}
