// powerfail: recover = "{bin} {pool} recover"
// A record of three lines, with its length in the first, is stored from back to front and flushed as a whole.
#include "../../programs/pm.h"

struct record {
	uint64_t len;
	uint64_t first[8] PM_LINE;
	uint64_t second[8] PM_LINE;
} PM_LINE;

int main(int argc, char **argv)
{
	struct record *record = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		uint64_t sum = 0;
		for (uint64_t i = 0; i < record->len; i++)
			sum += i < 8 ? record->first[i] : record->second[i - 8];
		return sum != record->len;
	}
	for (int i = 7; i >= 0; i--) {
		record->second[i] = 1; // lost: PF0201@halves
		record->first[i] = 1; // lost: PF0201@halves
	}
	record->len = 16;
	pm_flush(record->first);
	pm_flush(record->second);
	pm_flush(&record->len);
	pm_fence();
	return 0;
}
