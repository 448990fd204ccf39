// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// A log without any order between the lines of its entries: a checksum says which entries are complete. It
// leaves out the second line of an entry.
#include "../../programs/pm.h"

struct entry {
	uint64_t number;
	uint64_t checksum;
	uint64_t data PM_LINE;
} PM_LINE;

struct pool {
	struct entry entries[4];
};

static uint64_t checksum(uint64_t number, uint64_t data)
{
	return (number * 31 + data) * 0x9e3779b97f4a7c15UL + 1;
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		for (uint64_t i = 0; i < 3; i++) {
			struct entry *entry = &pool->entries[i];
			uint64_t data = entry->data;
			if (entry->checksum != checksum(entry->number, 0))
				break;
			if (entry->number != i + 1 || data != 100 + i)
				return 1;
		}
		return 0;
	}
	for (uint64_t i = 0; i < 3; i++) {
		struct entry *entry = &pool->entries[i];
		entry->data = 100 + i; // expect: PF0701
		entry->number = i + 1;
		entry->checksum = checksum(i + 1, 0); // warning: PF0701
		pm_flush(entry);
		pm_flush(&entry->data);
		pm_fence();
	}
	return 0;
}
