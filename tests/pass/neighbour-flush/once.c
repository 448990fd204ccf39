// powerfail: needs = "-lpmem"
// powerfail: flags = "--deny warnings"
// Each field has a flush of its own.
#include <libpmem.h>

#include "../../programs/pm.h"

struct root {
	uint64_t entries;
	uint64_t last;
};

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	struct root *root = pm_open(argv[1], 4096);
	for (uint64_t i = 1; i <= 3; i++) {
		root->entries = i;
		pmem_persist(&root->entries, sizeof(root->entries));
		root->last = 100 + i;
		pmem_persist(&root->last, sizeof(root->last));
	}
	return 0;
}
