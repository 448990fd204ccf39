/*
 * Figure 2 of the XFDetector paper: an element of an array is updated in place, with a backup of the old value
 * and a bit that says whether the backup is valid.
 *
 *     array_update POOL update    updates an element
 *     array_update POOL recover   restores the backup if it is valid
 *
 * What the paper finds: the valid bit has the wrong values. It is 1 when the update is complete, so that
 * recovery restores a stale backup: a cross-failure semantic bug at each failure point from there on. While
 * the update is in progress it is 0, and recovery does nothing.
 *
 * -DCORRECT: the bit has the correct values, and nothing is found.
 */
#include "annotated.h"

#ifdef CORRECT
enum { VALID = 1, NOT_VALID = 0 };
#else
enum { VALID = 0, NOT_VALID = 1 };
#endif

struct pool {
	uint64_t valid;
	struct backup backup LINE;
	uint64_t array[ELEMENTS] LINE;
};

static void update(struct pool *pool, uint64_t index, uint64_t value)
{
	pool->backup.index = index; // INDEX
	pool->backup.value = pool->array[index]; // VALUE
	barrier(&pool->backup);
	pool->valid = VALID; // SET
	barrier(&pool->valid);
	pool->array[index] = value;
	barrier(&pool->array[index]);
	pool->valid = NOT_VALID; // UNSET
	barrier(&pool->valid); // DONE
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
	powerfail_commit_variable(&pool->valid, sizeof(pool->valid));
	if (strcmp(argv[2], "recover") == 0) {
		recover(pool);
	} else {
		fill(pool->array);
		update(pool, 3, 33);
	}
	return 0;
}
