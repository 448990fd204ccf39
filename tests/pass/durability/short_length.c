// powerfail: needs = "-lpmem"
// powerfail: recover = "{bin} {pool} recover"
// The size of the record, not the size of the pointer: both lines of the record are flushed.
#include <libpmem.h>

#include "../../programs/pm.h"

struct record {
	uint64_t id;
	char name[56];
	uint64_t balance;
	char note[56];
};

int main(int argc, char **argv)
{
	struct record *record = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return record->id > 1;
	record->balance = 100;
	pmem_persist(&record->balance, sizeof(record->balance));
	record->id = 1;
	record->balance = 200;
	pmem_persist(record, sizeof(*record));
	return 0;
}
