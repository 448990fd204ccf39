/*
 * A record in an mmap'ed pool that forgets to flush its data.
 *
 * The flag that says "the record is there" is flushed and fenced, the record itself is not. After a
 * power failure the flag can be set and the record missing: they lie in different cache lines.
 */
#include <emmintrin.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define POOL_BYTES 4096

struct pool {
	char record[64];
	uint64_t is_valid;
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
	memcpy(pool->record, "the quick brown fox jumps over the lazy dog", 44);
	/* persist(pool->record) is missing here. */
	pool->is_valid = 1;
	persist(&pool->is_valid);
	puts("stored");
	return 0;
}
