/*
 * A log: entries of one line each, and the number of them.
 *
 *     log POOL append N      appends N entries; each is durable before it is counted
 *     log POOL recover       reads the number, and the last entry
 *
 * Each append has two fences, which are two failure points, and recovery reads the same few lines however long the log is: what
 * grows with N is the work of powerfail.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ENTRIES_MAX 16384

struct pool {
	struct {
		_Alignas(64) volatile uint64_t number;
	} entries[ENTRIES_MAX];
	_Alignas(64) volatile uint64_t count;
};

static void persist(volatile uint64_t *at, uint64_t value)
{
	*at = value;
	__builtin_ia32_clflush((void *)at);
	__builtin_ia32_sfence();
}

int main(int argc, char **argv)
{
	int file = argc < 3 ? -1 : open(argv[1], O_RDWR | O_CREAT, 0600);
	if (file < 0 || ftruncate(file, sizeof(struct pool)) != 0)
		return 2;
	struct pool *pool = mmap(NULL, sizeof(*pool), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (pool == MAP_FAILED)
		return 2;
	uint64_t count = pool->count;
	if (strcmp(argv[2], "recover") == 0)
		return count > ENTRIES_MAX || (count != 0 && pool->entries[count - 1].number != count);
	uint64_t end = argc < 4 ? 0 : strtoul(argv[3], NULL, 10);
	while (count < end && count < ENTRIES_MAX) {
		persist(&pool->entries[count].number, count + 1);
		persist(&pool->count, ++count);
	}
	return 0;
}
