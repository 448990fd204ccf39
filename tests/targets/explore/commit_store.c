/*
 * Figure 4 of the Jaaru paper: a child is created and flushed, then a commit store makes it reachable.
 *
 *     commit_store POOL add         addChild
 *     commit_store POOL read        readChild: reads the data only if there is a child
 *     commit_store POOL read-data   reads the data without checking whether there is a child
 *
 * There are three failure points: before each clflush, and at the end. The paper counts these executions:
 *
 *                                   read                                      read-data
 *     before the first clflush      1: no child                               2: the data may be there
 *     before the second clflush     2: no child; the child with its data      1: the data is there
 *     at the end                    1: the child with its data                1: the same
 *     together                      4                                         4
 *
 * The execution at the end has been seen before, so fewer are enough. The paper remarks that reading without
 * the commit store would take 2 to the power of n executions for n lines of data: build with -DLINES=n for
 * that.
 */
#include "../pool.h"

#ifndef LINES
#define LINES 1
#endif

struct child {
	struct {
		uint64_t data;
	} __attribute__((aligned(64))) lines[LINES];
};

struct pool {
	/* Offset of the child in the pool; zero if there is none. */
	uint64_t child;
	struct child place __attribute__((aligned(64)));
};

static void flush_range(void *at, size_t len)
{
	for (size_t offset = 0; offset < len; offset += 64)
		flush((char *)at + offset);
}

static void add_child(struct pool *pool, uint64_t data)
{
	struct child *child = &pool->place;
	for (int i = 0; i < LINES; i++)
		store8(&child->lines[i].data, data);
	flush_range(child, sizeof(*child));
	store8(&pool->child, (uint64_t)((char *)child - (char *)pool));
	flush_range(&pool->child, sizeof(pool->child));
}

static int print_data(const struct child *child)
{
	for (int i = 0; i < LINES; i++)
		printf("data=%lu ", *(const volatile uint64_t *)&child->lines[i].data);
	printf("\n");
	return 0;
}

int main(int argc, char **argv)
{
	REQUIRE(argc == 3);
	struct pool *pool = (struct pool *)map_pool(argv[1], 4096 + sizeof(*pool));
	if (strcmp(argv[2], "add") == 0) {
		add_child(pool, 7);
		return 0;
	}
	if (strcmp(argv[2], "read-data") == 0)
		return print_data(&pool->place);
	uint64_t child = *(volatile uint64_t *)&pool->child;
	if (child)
		return print_data((struct child *)((char *)pool + child));
	printf("no child\n");
	return 0;
}
