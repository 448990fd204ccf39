// powerfail: recover = "{bin} {pool} recover"
// A record is flushed before it is counted.
#include "../../programs/pm.h"

struct record {
	uint64_t length;
	char text[56];
} PM_LINE;

struct pool {
	uint64_t count;
	struct record records[8];
};

static void append(struct pool *pool, const char *text)
{
	struct record *record = &pool->records[pool->count];
	record->length = strlen(text);
	memcpy(record->text, text, record->length);
	pm_persist(record);
	pool->count++;
	pm_persist(&pool->count);
}

static int recover(const struct pool *pool)
{
	for (uint64_t i = 0; i < pool->count; i++) {
		if (pool->records[i].length != 0)
			continue;
		if (i == 0)
			abort();
		if (i == 1)
			return 3;
		return *(volatile int *)0;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return recover(pool);
	append(pool, "one");
	append(pool, "two");
	append(pool, "three");
	return 0;
}
