// A record of 16 lines is published before it is durable, so recovery fails in almost all that it can observe. Later a
// flag is flushed under the same fence as its data, which nothing in the record can show.
//
// With -DSUM, recovery prints the sum of a large pool and accepts everything: there is much to observe and no bug.
#include "../../../../../tests/programs/pm.h"

enum { LINES = 16, ROUNDS = 4 };

struct line {
	uint64_t value PM_LINE;
};

struct pool {
	uint64_t count PM_LINE;
	struct line lines[ROUNDS * LINES];
	uint64_t data PM_LINE;
	uint64_t flag PM_LINE;
};

static int recover(struct pool *pool)
{
#ifdef SUM
	uint64_t sum = 0;
	for (int line = 0; line < ROUNDS * LINES; line++)
		sum += pool->lines[line].value;
	printf("%lu\n", sum);
	return 0;
#endif
	if (pool->flag == 1 && pool->data != 7)
		return 3;
	uint64_t wrong = 0;
	for (uint64_t line = 0; line < pool->count * LINES; line++)
		wrong += pool->lines[line].value != line + 1;
	return wrong > 0;
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 8192);
	if (pm_mode(argc, argv, "recover"))
		return recover(pool);
	for (uint64_t round = 0; round < ROUNDS; round++) {
		for (uint64_t line = round * LINES; line < (round + 1) * LINES; line++)
			pool->lines[line].value = line + 1;
		pool->count = round + 1;
		pm_persist(&pool->count);
		for (uint64_t line = round * LINES; line < (round + 1) * LINES; line++)
			pm_flush(&pool->lines[line]);
		pm_fence();
	}
	pool->data = 7;
	pool->flag = 1;
	pm_flush(&pool->data);
	pm_persist(&pool->flag);
	return 0;
}
