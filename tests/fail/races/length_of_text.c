// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// A text is durable before it is marked as valid, but its length is not.
#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

struct pool {
	uint64_t is_valid;
	uint64_t length PM_LINE;
	uint64_t text[4] PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	powerfail_commit_range(&pool->is_valid, sizeof(pool->is_valid), &pool->length,
			       sizeof(*pool) - offsetof(struct pool, length));
	if (pm_mode(argc, argv, "recover")) {
		if (!pool->is_valid)
			return 0;
		uint64_t last = pool->length - 1;
		return last >= 4 || pool->text[last] != '.';
	}
	for (uint64_t i = 0; i < 3; i++)
		pool->text[i] = "ab."[i];
	pm_persist(pool->text);
	pool->length = 3; // expect: PF0701
	pool->is_valid = 1;
	pm_persist(&pool->is_valid);
	pm_persist(&pool->length);
	return 0;
}
