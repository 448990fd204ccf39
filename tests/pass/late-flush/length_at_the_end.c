// powerfail: needs = "-lpmem"
// powerfail: flags = "--deny warnings --only late-flush,durability,redundant-flush"
// The length of a log is stored and flushed with each record.
#include <libpmem.h>

#include "../../programs/pm.h"

struct log {
	uint64_t len;
	PM_LINE uint64_t records[16][8];
};

static void append(struct log *log, uint64_t value)
{
	uint64_t *record = log->records[log->len];
	*record = value;
	pmem_persist(record, sizeof(*record));
	log->len++;
	pmem_persist(&log->len, sizeof(log->len));
}

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	struct log *log = pm_open(argv[1], 8192);
	if (log->len > 0)
		return 0;
	for (uint64_t i = 0; i < 12; i++)
		append(log, 100 + i);
	return 0;
}
