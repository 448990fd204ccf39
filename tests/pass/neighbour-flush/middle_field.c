// powerfail: needs = "-lpmem"
// powerfail: flags = "--deny warnings --only neighbour-flush,durability,redundant-flush"
// Three fields in one line, flushed one by one.
#include <libpmem.h>

#include "../../programs/pm.h"

struct job {
	uint64_t number;
	uint64_t owner;
	uint64_t state;
};

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	struct job *job = pm_open(argv[1], 4096);
	job->number = 7;
	pmem_flush(&job->number, sizeof(job->number));
	job->owner = 8;
	pmem_flush(&job->owner, sizeof(job->owner));
	job->state = 9;
	pmem_flush(&job->state, sizeof(job->state));
	pmem_drain();
	return 0;
}
