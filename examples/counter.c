/*
 * A record in persistent memory with a counter that says how many bytes of it are valid.
 *
 * The counter is flushed and fenced, the record itself is not. After a power failure the counter can be new and the
 * record missing: they lie in different cache lines.
 */
#include <emmintrin.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define POOL_BYTES 4096
#define TEXT "the quick brown fox"

struct pool {
	char record[64];
	uint64_t valid_bytes;
};

static void persist(const void *address)
{
	_mm_clflush(address);
	_mm_sfence();
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s POOL\n", argv[0]);
		return 2;
	}
	int fd = open(argv[1], O_RDWR | O_CREAT, 0644);
	if (fd < 0 || ftruncate(fd, POOL_BYTES) != 0) {
		perror(argv[1]);
		return 1;
	}
	struct pool *pool = mmap(NULL, POOL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (pool == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	/* A second start finds what the first has stored. */
	if (pool->valid_bytes != 0 && memcmp(pool->record, TEXT, sizeof(TEXT)) != 0) {
		fprintf(stderr, "%s is damaged\n", argv[1]);
		return 1;
	}
	memcpy(pool->record, TEXT, sizeof(TEXT));
	/* persist(pool->record) is missing here. */
	pool->valid_bytes = sizeof(TEXT);
	persist(&pool->valid_bytes);
	return 0;
}
