// powerfail: needs = "-lpmem"
// powerfail: flags = "--deny warnings"
// One flush for two fields, of which its range has one. The line is shared, and that is one warning.
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
		root->last = 100 + i; // expect: PF0604
		pmem_persist(&root->entries, sizeof(root->entries));
	}
	return 0;
}
