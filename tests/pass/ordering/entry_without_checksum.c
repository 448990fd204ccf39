// powerfail: recover = "{bin} {pool} recover"
// A log entry has two lines that are flushed with one fence, in any order.
// Recovery treats an entry as complete if its checksum is correct.
#include "../../programs/pm.h"

struct entry {
	uint64_t number;
	uint64_t checksum;
	uint64_t data PM_LINE;
} PM_LINE;

struct pool {
	struct entry entries[4];
};

static uint64_t checksum(const struct entry *entry)
{
	return (entry->number * 31 + entry->data) * 0x9e3779b97f4a7c15UL + 1;
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		for (uint64_t i = 0; i < 3; i++) {
			struct entry *entry = &pool->entries[i];
			if (entry->number != i + 1 || entry->checksum != checksum(entry))
				break;
			if (entry->data != 100 + i)
				return 1;
		}
		return 0;
	}
	for (uint64_t i = 0; i < 3; i++) {
		struct entry *entry = &pool->entries[i];
		entry->data = 100 + i;
		entry->number = i + 1;
		entry->checksum = checksum(entry);
		pm_flush(entry);
		pm_flush(&entry->data);
		pm_fence();
	}
	return 0;
}
