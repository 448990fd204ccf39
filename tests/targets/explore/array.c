/*
 * The example in the introduction of the Jaaru paper: an array of integers is filled, flushed, and committed.
 *
 *     array POOL fill N      N integers of eight bytes, N a multiple of eight
 *     array POOL recover N   reads the array if it is committed; it must be complete then
 *
 * Before the fence of the array, each of its N/8 lines has nine contents, the initial one and those after
 * each of its eight stores: 9 to the power of N/8 states, all of which an eager explorer must try. Recovery
 * reads the commit store first, so it observes
 *
 *     before the fence of the array            nothing committed     1 execution
 *     before the fence of the commit store     committed or not      2 executions
 *     at the end                               committed             1 execution, seen before
 *
 * which is at most 4, whatever N is.
 *
 * -DBUG=1: the array is flushed after the commit store.
 */
#include "../pool.h"

#ifndef BUG
#define BUG 0
#endif

struct pool {
	uint64_t is_committed;
	uint64_t elements[] __attribute__((aligned(64)));
};

static void write_back(volatile void *at)
{
	__asm__ volatile("clflushopt %0" : "+m"(*(volatile char *)at) : : "memory");
}

static void persist_array(struct pool *pool, uint64_t count)
{
	for (uint64_t i = 0; i < count; i += 8)
		write_back(&pool->elements[i]);
	sfence();
}

static int recover(const struct pool *pool, uint64_t count)
{
	if (!*(const volatile uint64_t *)&pool->is_committed) {
		printf("empty\n");
		return 0;
	}
	for (uint64_t i = 0; i < count; i++) {
		if (((const volatile struct pool *)pool)->elements[i] != i + 1) {
			printf("element %lu is missing\n", i);
			return 1;
		}
	}
	printf("whole\n");
	return 0;
}

int main(int argc, char **argv)
{
	REQUIRE(argc == 4);
	uint64_t count = strtoul(argv[3], NULL, 10);
	REQUIRE(count && count % 8 == 0);
	struct pool *pool = (struct pool *)map_pool(argv[1], sizeof(*pool) + count * sizeof(uint64_t));
	if (strcmp(argv[2], "recover") == 0)
		return recover(pool, count);
	for (uint64_t i = 0; i < count; i++)
		store8(&pool->elements[i], i + 1);
	if (BUG != 1)
		persist_array(pool, count);
	store8(&pool->is_committed, 1);
	write_back(&pool->is_committed);
	sfence();
	if (BUG == 1)
		persist_array(pool, count);
	return 0;
}
