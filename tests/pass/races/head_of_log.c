// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// The head of a log counts an entry that is durable.
#include "../../programs/pm.h"

struct pool {
	uint64_t head;
	struct {
		uint64_t number;
	} PM_LINE entries[4];
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		uint64_t head = pool->head;
		for (uint64_t i = 0; i < head; i++)
			if (pool->entries[i].number != i + 1)
				return 1;
		return 0;
	}
	for (uint64_t i = 0; i < 3; i++) {
		pool->entries[i].number = i + 1;
		pm_persist(&pool->entries[i]);
		// The head itself may be old or new; both are correct.
		pool->head = i + 1; // warning: PF0701
		pm_persist(&pool->head);
	}
	return 0;
}
