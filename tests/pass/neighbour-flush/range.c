// powerfail: needs = "-lpmem"
// powerfail: flags = "--deny warnings --only neighbour-flush,durability,redundant-flush"
// A range with both fields.
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
		root->last = 100 + i;
		pmem_persist(root, sizeof(*root));
	}
	return 0;
}
