/* memcpy, memmove and memset of libpmem: all flags, many sizes and alignments. */
#include <libpmem.h>

#include "pool.h"

static const unsigned all_flags[] = {
	0,
	PMEM_F_MEM_NODRAIN,
	PMEM_F_MEM_NONTEMPORAL,
	PMEM_F_MEM_TEMPORAL,
	PMEM_F_MEM_WC,
	PMEM_F_MEM_WB,
	PMEM_F_MEM_NOFLUSH,
	PMEM_F_MEM_NODRAIN | PMEM_F_MEM_NONTEMPORAL,
	PMEM_F_MEM_NODRAIN | PMEM_F_MEM_TEMPORAL,
	PMEM_F_MEM_NOFLUSH | PMEM_F_MEM_NODRAIN | PMEM_F_MEM_WC,
};

static const size_t sizes[] = {0,   1,	 7,   8,   15,	16,  31,  32,	63,   64,   65,	  127,	128,
			       129, 191, 255, 256, 257, 511, 512, 1000, 1024, 2048, 4096, 5000, 20000};

int main(int argc, char **argv)
{
	REQUIRE(argc == 2);
	size_t len;
	int is_pmem;
	char *pool = pmem_map_file(argv[1], MIB, PMEM_FILE_CREATE, 0600, &len, &is_pmem);
	REQUIRE(pool != NULL && len == MIB);
	static char source[32768], expected[32768];
	for (size_t at = 0; at < sizeof(source); at++)
		source[at] = (char)(at * 13 + at / 256);
	for (size_t f = 0; f < sizeof(all_flags) / sizeof(*all_flags); f++) {
		unsigned flags = all_flags[f];
		for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
			size_t size = sizes[s], shift = (f * 5 + s * 3) % 64;
			char *to = pool + 65536 * (f % 8) + shift;
			pmem_memcpy(to, source + s, size, flags);
			REQUIRE(memcmp(to, source + s, size) == 0);
			memcpy(expected, to, size + 64);
			memmove(expected + 9, expected, size);
			pmem_memmove(to + 9, to, size, flags);
			REQUIRE(memcmp(to, expected, size + 9) == 0);
			memmove(expected, expected + 3, size);
			pmem_memmove(to, to + 3, size, flags);
			REQUIRE(memcmp(to, expected, size) == 0);
			pmem_memset(to, (int)(f + s), size, flags);
			memset(expected, (int)(f + s), size);
			REQUIRE(memcmp(to, expected, size) == 0);
		}
	}
	pmem_drain();
	pmem_persist(pool, 100);
	REQUIRE(pmem_msync(pool, 4096) == 0);
	REQUIRE(pmem_unmap(pool, len) == 0);
	return 0;
}
