/*
 * Figure 11 of the XFDetector paper: a backup and its valid bit are made durable by one barrier, before the
 * update in place.
 *
 *     one_barrier POOL update    updates an element
 *     one_barrier POOL recover   restores the backup if it is valid
 *
 * What the paper finds, with `valid` as the commit variable:
 *
 *     F1, before the first barrier     a cross-failure race: the backup may not be durable when it is read
 *     F2, before the second barrier    a cross-failure semantic bug: the backup was not durable before the
 *                                      last store to `valid`
 *
 * In the paper backup and bit share a line, and caches keep the order of stores to a line: a reader of the new
 * bit also reads the new backup. So the race at F1 is one only by the paper's rule (`--strict`); it has an
 * effect only if they are on separate lines, which is the default here.
 *
 * -DSAME_LINE: as in the paper. -DCORRECT: a barrier after each of them, and nothing is found.
 */
#include "annotated.h"

#ifdef SAME_LINE
#define PLACE
#else
#define PLACE LINE
#endif

struct pool {
	struct backup backup LINE;
	uint64_t valid PLACE;
	uint64_t array[ELEMENTS] LINE;
};

static void update(struct pool *pool, uint64_t index, uint64_t value)
{
	pool->backup.index = index; // INDEX
	pool->backup.value = pool->array[index]; // VALUE
#ifdef CORRECT
	barrier(&pool->backup);
#endif
	pool->valid = 1; // SET
#if !defined(SAME_LINE) && !defined(CORRECT)
	write_back(&pool->backup);
#endif
	barrier(&pool->valid); // F1
	pool->array[index] = value;
	barrier(&pool->array[index]); // F2
	pool->valid = 0; // UNSET
	barrier(&pool->valid);
}

static void recover(struct pool *pool)
{
	if (pool->valid) {
		uint64_t index = pool->backup.index; // READ_INDEX
		pool->array[index] = pool->backup.value; // READ_VALUE
		barrier(&pool->array[index]);
	}
}

int main(int argc, char **argv)
{
	REQUIRE(argc == 3);
	struct pool *pool = (struct pool *)map_pool(argv[1], 4096);
	powerfail_commit_range(&pool->valid, sizeof(pool->valid), &pool->backup, sizeof(pool->backup));
	if (strcmp(argv[2], "recover") == 0) {
		recover(pool);
	} else {
		fill(pool->array);
		update(pool, 3, 33);
	}
	return 0;
}
