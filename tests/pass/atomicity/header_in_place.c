// powerfail: recover = "{bin} {pool} recover"
// Two headers are written in turn: at most one is damaged.
#include "../../programs/pm.h"

struct header {
	uint64_t number;
	uint64_t root;
	uint64_t sum;
} PM_LINE;

static uint64_t sum(const volatile struct header *header)
{
	return 3 * header->number + 5 * header->root + 1;
}

static int is_good(const volatile struct header *header)
{
	return header->number == 0 || header->sum == sum(header);
}

static void save(volatile struct header *header, uint64_t number)
{
	header += number % 2;
	header->number = number;
	header->root = 100 * number;
	header->sum = sum(header);
	pm_persist(header);
}

int main(int argc, char **argv)
{
	struct header *headers = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return !is_good(&headers[0]) && !is_good(&headers[1]);
	for (uint64_t i = 1; i < 5; i++)
		save(headers, i);
	return 0;
}
