/* libpmem on a pool, in few steps: copies of some lengths and flags, and all ways to make data durable. */
#include <libpmem.h>

#include "pool.h"

static _Alignas(64) char source[8192];

int main(int argc, char **argv)
{
	static const size_t lengths[] = {1, 8, 33, 64, 100, 256, 300, 1000, 4096, 5000};
	static const unsigned all_flags[] = {0, PMEM_F_MEM_NODRAIN, PMEM_F_MEM_NONTEMPORAL, PMEM_F_MEM_TEMPORAL,
					     PMEM_F_MEM_NOFLUSH};
	REQUIRE(argc == 2);
	for (size_t at = 0; at < sizeof(source); at++)
		source[at] = (char)(at * 13 + at / 256);
	size_t len;
	int is_pmem;
	char *pool = pmem_map_file(argv[1], MIB, PMEM_FILE_CREATE, 0600, &len, &is_pmem);
	REQUIRE(pool != NULL && is_pmem);
	for (size_t f = 0; f < sizeof(all_flags) / sizeof(*all_flags); f++) {
		for (size_t l = 0; l < sizeof(lengths) / sizeof(*lengths); l++) {
			char *to = pool + 16384 * f + 7 * l;
			pmem_memcpy(to, source + l, lengths[l], all_flags[f]);
			pmem_memmove(to + 9, to, lengths[l], all_flags[f]);
			pmem_memmove(to, to + 70, lengths[l], all_flags[f]);
			pmem_memset(to, (int)(f + l), lengths[l], all_flags[f]);
		}
		pmem_drain();
	}
	store8(pool + 100, 1);
	pmem_persist(pool + 100, 8);
	store8(pool + 188, 2);
	pmem_flush(pool + 188, 8);
	pmem_drain();
	pmem_deep_persist(pool, 300);
	REQUIRE(pmem_unmap(pool, len) == 0);
	return 0;
}
