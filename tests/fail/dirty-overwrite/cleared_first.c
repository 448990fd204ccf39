// powerfail: needs = "-lpmem"
// A record is cleared and then filled before anything is flushed.
#include <libpmem.h>

#include "../../programs/pm.h"

struct record {
	uint64_t id;
	uint64_t value;
};

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	struct record *record = pm_open(argv[1], 4096);
	memset(record, 0, sizeof(*record)); // expect: PF0505@record
	record->id = 1; // expect: PF0505@record
	record->value = 10; // expect: PF0505@record
	pmem_persist(record, sizeof(*record));
	return 0;
}
