// powerfail: recover = "{bin} {pool} recover"
// A cell is valid before the rest of its line is stored. Recovery refuses what is valid and not complete, and nothing else: zeros and noise
// are accepted.
#include "../../programs/pm.h"

struct cell {
	volatile uint32_t valid;
	volatile uint32_t sensor;
	volatile uint64_t time;
	volatile uint64_t reading;
} PM_LINE;

static void record(struct cell *cell, uint64_t number)
{
	cell->valid = 1; // expect: PF0301
	cell->sensor = 3 + number;
	cell->time = 1000 + number;
	cell->reading = 17 * number + 1;
	pm_persist(cell);
}

int main(int argc, char **argv)
{
	struct cell *cells = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		for (int i = 0; i < 4; i++)
			if (cells[i].valid && (!cells[i].sensor || !cells[i].time || !cells[i].reading))
				return 1;
		return 0;
	}
	for (uint64_t i = 0; i < 4; i++)
		record(&cells[i], i);
	return 0;
}
