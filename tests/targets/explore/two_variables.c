/*
 * Figures 2 and 3 of the Jaaru paper: two variables in one line, and a recovery that reads one or both.
 *
 *     two_variables POOL store           figure 2
 *     two_variables POOL recover         figure 3: reads x
 *     two_variables POOL recover-both    reads x, then y
 *
 * There are two failure points: before the clflush, and at the end. The values that can be read, and so the
 * number of executions that the paper's method needs:
 *
 *                          x             executions   x, y                                executions
 *     before the clflush   0, 2          2            0 0, 0 1, 2 1                       3
 *     at the end           2, 4, 6       3            2 1, 2 3, 4 3, 4 5, 6 5             5
 *     together                           5                                                8
 *
 * Reading 4 from x means that the line was written back between x = 4 and x = 6, so y is 3 or 5 and not 1.
 */
#include "../pool.h"

struct pool {
	uint64_t x;
	uint64_t y;
};

int main(int argc, char **argv)
{
	REQUIRE(argc == 3);
	struct pool *pool = (struct pool *)map_pool(argv[1], 4096);
	if (strcmp(argv[2], "store") == 0) {
		store8(&pool->y, 1);
		store8(&pool->x, 2);
		flush(pool);
		store8(&pool->y, 3);
		store8(&pool->x, 4);
		store8(&pool->y, 5);
		store8(&pool->x, 6);
		return 0;
	}
	printf("x=%lu", *(volatile uint64_t *)&pool->x);
	if (strcmp(argv[2], "recover-both") == 0)
		printf(" y=%lu", *(volatile uint64_t *)&pool->y);
	printf("\n");
	return 0;
}
