/*
 * A record and its length in persistent memory, with a test in CMake and in Meson.
 *
 * Compiled with -DWITHOUT_FLUSH the record is not flushed, and the test fails.
 */
#include <emmintrin.h>
#include <fcntl.h>
#include <powerfail.h>
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

static void store(struct pool *pool)
{
	memcpy(pool->record, TEXT, sizeof(TEXT));
#ifndef WITHOUT_FLUSH
	persist(pool->record);
#endif
	pool->valid_bytes = sizeof(TEXT);
	persist(&pool->valid_bytes);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: %s POOL [check]\n", argv[0]);
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
	if (argc > 2) /* Recovery. */
		return pool->valid_bytes != 0 && memcmp(pool->record, TEXT, sizeof(TEXT)) != 0;
	/* Never needed: failures inside are reported with this number. */
	powerfail_operation_begin(1);
	store(pool);
	powerfail_operation_end(1);
	return 0;
}
