// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// Two tasks have one log and one valid bit each. Each is undone according to its own bit.
#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

struct log {
	uint64_t is_valid;
	uint64_t backup PM_LINE;
	uint64_t value PM_LINE;
} PM_LINE;

struct pool {
	struct log logs[2];
};

static void set(uint64_t *at, uint64_t value)
{
	*at = value;
	pm_persist(at);
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	for (int i = 0; i < 2; i++) {
		struct log *log = &pool->logs[i];
		powerfail_commit_range(&log->is_valid, sizeof(log->is_valid), &log->backup, sizeof(log->backup));
	}
	if (pm_mode(argc, argv, "recover")) {
		for (int i = 0; i < 2; i++) {
			struct log *log = &pool->logs[i];
			if (log->is_valid)
				set(&log->value, log->backup);
		}
		return 0;
	}
	struct log *first = &pool->logs[0], *second = &pool->logs[1];
	set(&second->backup, 20);
	set(&second->is_valid, 1);
	set(&second->value, 21);
	set(&second->is_valid, 0);
	set(&first->backup, 10);
	set(&first->is_valid, 1);
	set(&first->value, 11);
	set(&first->is_valid, 0);
	return 0;
}
