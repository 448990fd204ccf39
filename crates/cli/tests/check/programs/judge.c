// Two fields that must become durable together, and recoveries that judge them in several ways.
#include "../../../../../tests/programs/pm.h"

struct pool {
	uint64_t a;
	uint64_t b PM_LINE;
};

static const char *mode = "";

static int is(const char *name)
{
	return strcmp(mode, name) == 0;
}

static int recover(struct pool *pool)
{
	if (is("shrugs"))
		return (pool->a == 12345) & (pool->b == 54321);
	if (is("begins-anew")) {
		memset(pool, 0, sizeof(*pool));
		return 0;
	}
	int is_torn = pool->a == 1 && pool->b == 0;
	if (is("whispers")) {
		if (is_torn)
			fprintf(stderr, "ASSERTION b == a is wrong\n");
		return 0;
	}
	if (is("always-whispers")) {
		fprintf(stderr, "no crash so far\n");
		return 0;
	}
	if (is("crashes") && is_torn)
		abort();
	if (is("crashes-if-told") && is_torn && getenv("PMEM_TOLD"))
		abort();
	if (is("reads-input")) {
		char word[16] = "";
		if (scanf("%15s", word) != 1 || strcmp(word, "commands") != 0)
			return 3;
	}
	if (is("talks") && is_torn) {
		fprintf(stderr, "the reason\n");
		for (int line = 0; line < 100; line++)
			printf("line %d\n", line);
		return 4;
	}
	return pool->a > 1 || pool->b > 1;
}

int main(int argc, char **argv)
{
	if (argc > 2)
		mode = argv[2];
	struct pool *pool = pm_open(argv[1], 4096);
	if (is("idle"))
		return 0;
	if (is("flushes")) {
		pm_persist(&pool->a);
		return 0;
	}
	if (argc > 2)
		return recover(pool);
	pool->a = 1;
	pm_persist(&pool->a);
	pool->b = 1;
	pm_persist(&pool->b);
	return 0;
}
