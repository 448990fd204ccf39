// powerfail: recover = "{bin} {pool} recover"
// powerfail: opt = "-O0 -static"
// A statically linked program, which is recorded under QEMU. It makes the number of its records durable before the record.
#include "../../programs/pm.h"

struct record {
	uint64_t key;
	uint64_t twice;
} PM_LINE;

struct pool {
	uint64_t count;
	struct record records[8];
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		for (uint64_t i = 0; i < pool->count; i++)
			if (pool->records[i].key == 0 || pool->records[i].twice != 2 * pool->records[i].key)
				return 1;
		return 0;
	}
	for (uint64_t i = 0; i < 3; i++) {
		pool->records[i].key = 5 + i; // expect: PF0201@record
		pool->records[i].twice = 2 * (5 + i); // expect: PF0201@record
		pool->count = i + 1; // expect: PF0201@record
		pm_persist(&pool->count);
		pm_persist(&pool->records[i]);
	}
	return 0;
}
