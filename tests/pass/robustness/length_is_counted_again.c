// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--deny warnings"
// An element is durable before the length counts it. Recovery still counts the elements again.
#include "../../programs/pm.h"

struct element {
	uint64_t value;
} PM_LINE;

struct pool {
	uint64_t len;
	struct element elements[8];
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		uint64_t len = 0;
		while (len < pool->len && pool->elements[len].value)
			len++;
		return len > 3;
	}
	for (uint64_t i = 0; i < 3; i++) {
		pool->elements[i].value = 10 + i;
		pm_persist(&pool->elements[i]);
		pool->len = i + 1;
		pm_persist(&pool->len);
	}
	return 0;
}
