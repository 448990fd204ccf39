// powerfail: flags = "--deny warnings --only late-flush,durability,redundant-flush"
// A flag that says that a table is being copied is flushed before it is copied.
#include "../../programs/pm.h"

struct table {
	uint64_t resizing;
	PM_LINE uint64_t slots[16][8];
};

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	struct table *table = pm_open(argv[1], 8192);
	table->resizing = 1;
	pm_persist(&table->resizing);
	for (uint64_t i = 0; i < 12; i++) {
		table->slots[i][0] = i + 1;
		pm_persist(table->slots[i]);
	}
	return 0;
}
