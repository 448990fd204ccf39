/* Sets and copies of libpmem, which are non-temporal stores: 64 KiB at a time. */
#include <libpmem.h>
#include <stdio.h>
#include <stdlib.h>

#define PIECE (64ul << 10)

int main(int argc, char **argv)
{
	static char source[PIECE];
	long rounds = argc > 2 ? atol(argv[2]) : 1;
	size_t len = 16ul << 20;
	int is_pmem;
	char *pool = pmem_map_file(argv[1], len, PMEM_FILE_CREATE, 0666, &len, &is_pmem);
	if (pool == NULL) {
		perror(argv[1]);
		return 1;
	}
	for (long i = 0; i < rounds; i++)
		for (size_t at = 0; at < len; at += 2 * PIECE) {
			pmem_memset_persist(pool + at, (int)i + 1, PIECE);
			source[i % PIECE] = (char)i;
			pmem_memcpy_persist(pool + at + PIECE, source, PIECE);
		}
	printf("%d\n", pool[len - 1]);
	pmem_unmap(pool, len);
	return 0;
}
