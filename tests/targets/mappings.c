/* Pools mapped in all the ways that mmap offers. The first argument selects one, the others are pools. */
#define _GNU_SOURCE
#include "pool.h"
#include <errno.h>

static char **paths;

static void two_pools(void)
{
	char *one = map_pool(paths[0], MIB), *other = map_pool(paths[1], 2 * MIB);
	store8(one + 64, 1);
	store8(other + 128, 2);
	flush(one + 64);
	flush(other + 128);
	sfence();
	memcpy(one + 4096, other + 128, 8);
}

static void mapped_twice(void)
{
	int fd = open_pool(paths[0], MIB);
	char *one = map_fd(fd, MIB, 0), *other = map_fd(fd, MIB, 0);
	REQUIRE(one != other);
	store8(one + 64, 1);
	REQUIRE(*(volatile uint64_t *)(other + 64) == 1);
	store8(other + 64, 2);
	REQUIRE(*(volatile uint64_t *)(one + 64) == 2);
	flush(other + 64);
	__atomic_fetch_add((uint64_t *)(one + 64), 1, __ATOMIC_SEQ_CST);
	int again = open(paths[0], O_RDWR);
	char *third = map_fd(again, MIB, 0);
	REQUIRE(__atomic_fetch_add((uint64_t *)(third + 64), 1, __ATOMIC_SEQ_CST) == 3);
}

static void parts(void)
{
	int fd = open_pool(paths[0], MIB);
	char *second = map_fd(fd, 8192, 4096), *far = map_fd(fd, 4096, 65536);
	store8(second, 1);
	store8(second + 8184, 2);
	store8(far + 16, 3);
	flush(far + 16);
	sfence();
	/* A length that is not a multiple of a page. */
	char *odd = map_fd(fd, 5000, 131072);
	store8(odd + 4990, 4);
	/* Written through the file while it is mapped. */
	REQUIRE(pwrite(fd, "x", 1, 65536 + 100) == 1);
}

static void mapped_again(void)
{
	for (uint64_t round = 0; round < 5; round++) {
		char *pool = map_pool(paths[0], MIB);
		REQUIRE(*(uint64_t *)(pool + 64) == round);
		store8(pool + 64, round + 1);
		flush(pool + 64);
		sfence();
		REQUIRE(munmap(pool, MIB) == 0);
	}
}

static void unmapped_in_part(void)
{
	char *pool = map_pool(paths[0], MIB);
	store8(pool, 1);
	store8(pool + 65536, 2);
	store8(pool + MIB - 8, 3);
	REQUIRE(munmap(pool + 65536, 65536) == 0);
	store8(pool + 65536 - 8, 4);
	store8(pool + 131072, 5);
	/* Other memory in the gap is not a pool. */
	char *gap = mmap(pool + 65536, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
			 -1, 0);
	REQUIRE(gap == pool + 65536);
	store8(gap, 6);
	REQUIRE(*(volatile uint64_t *)gap == 6);
	REQUIRE(munmap(pool, 65536) == 0);
	store8(pool + 131072, 7);
}

/* None of these is a pool: nothing stored there outlives the program, or nothing is stored. */
static void not_pools(void)
{
	int fd = open_pool(paths[0], MIB);
	char *private = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	REQUIRE(private != MAP_FAILED);
	memset(private, 1, 4096);
	char *reader = mmap(NULL, MIB, PROT_READ, MAP_SHARED, fd, 0);
	REQUIRE(reader != MAP_FAILED && reader[0] == 0);
	char *anonymous =
		mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(anonymous != MAP_FAILED);
	memset(anonymous, 2, 4096);
	flush(anonymous);
	sfence();
}

/* A private and a read-only mapping of a file that is also mapped as a pool. */
static void pool_and_others(void)
{
	int fd = open_pool(paths[0], MIB);
	char *pool = map_fd(fd, MIB, 0);
	char *private = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	char *reader = mmap(NULL, MIB, PROT_READ, MAP_SHARED, fd, 0);
	REQUIRE(private != MAP_FAILED && reader != MAP_FAILED);
	/* One instruction stores to both. */
	char *places[] = {pool, private, pool, private};
	for (uint64_t at = 0; at < 4; at++)
		store8(places[at] + 64, at + 1);
	REQUIRE(*(volatile uint64_t *)(reader + 64) == 3);
	REQUIRE(*(volatile uint64_t *)(private + 64) == 4);
}

static void sparse(void)
{
	size_t len = 64UL << 30;
	char *pool = map_pool(paths[0], len);
	for (size_t at = 0; at < len; at += len / 16)
		store8(pool + at, at + 1);
	store8(pool + len - 8, 1);
	flush(pool + len - 8);
	sfence();
}

/* The protection is removed and restored. */
static void protected(void)
{
	char *pool = map_pool(paths[0], MIB);
	store8(pool, 1);
	REQUIRE(mprotect(pool, MIB, PROT_READ) == 0);
	REQUIRE(*(volatile uint64_t *)pool == 1);
	REQUIRE(mprotect(pool, MIB, PROT_READ | PROT_WRITE) == 0);
	store8(pool + 8, 2);
	REQUIRE(mprotect(pool + 4096, 4096, PROT_NONE) == 0);
	store8(pool + 16, 3);
	REQUIRE(mprotect(pool + 4096, 4096, PROT_READ | PROT_WRITE) == 0);
	store8(pool + 4096, 4);
}

/* The file is deleted before the program ends. */
static void removed(void)
{
	char *pool = map_pool(paths[0], MIB);
	store8(pool, 1);
	REQUIRE(unlink(paths[0]) == 0);
	store8(pool + 8, 2);
}

/* One instruction for all stores, which is patched after the first. */
__attribute__((noinline)) static void put(char *at, uint64_t value)
{
	store8(at, value);
}

/* mremap in all variants. */
static void remapped(void)
{
	char *pool = map_pool(paths[0], MIB);
	put(pool, 1);
	put(pool + MIB - 8, 2);
	/* Shorter. */
	REQUIRE(mremap(pool, MIB, MIB / 2, 0) == pool);
	put(pool + MIB / 2 - 8, 3);
	/* Longer, in place. */
	REQUIRE(mremap(pool, MIB / 2, MIB, 0) == pool);
	REQUIRE(*(volatile uint64_t *)(pool + MIB - 8) == 2);
	put(pool + MIB - 16, 4);
	/* Another mapping is in the way. */
	char *next = map_pool(paths[0], MIB);
	size_t len = (size_t)MIB << 12;
	REQUIRE(mremap(pool, MIB, len, 0) == MAP_FAILED);
	char *moved = mremap(pool, MIB, len, MREMAP_MAYMOVE);
	REQUIRE(moved != MAP_FAILED && moved != pool);
	put(moved + 8, 5);
	REQUIRE(*(volatile uint64_t *)(next + 8) == 5);
	flush(moved + 8);
	sfence();
	/* To an address that the program has chosen: over another mapping. */
	char *fixed = mremap(moved, MIB, MIB, MREMAP_MAYMOVE | MREMAP_FIXED, next);
	REQUIRE(fixed == next);
	put(next + 16, 6);
	/* A second view of the same pages. */
	char *view = mremap(next, 0, MIB, MREMAP_MAYMOVE);
	REQUIRE(view != MAP_FAILED && view != next);
	put(view + 24, 7);
	REQUIRE(*(volatile uint64_t *)(next + 24) == 7);
	/* The middle of a mapping. */
	char *part = mremap(view + 65536, 4096, 8192, MREMAP_MAYMOVE);
	REQUIRE(part != MAP_FAILED && part != view + 65536);
	put(part, 8);
	put(part + 4096, 9);
	put(view + 131072, 10);
	REQUIRE(*(volatile uint64_t *)(next + 65536) == 8);
}

/* Addresses are reserved first; then a pool and other memory are mapped there. */
static void reserved(void)
{
	char *all = mmap(NULL, 16 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	REQUIRE(all != MAP_FAILED);
	int fd = open_pool(paths[0], MIB);
	char *pool = mmap(all + 4 * MIB, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	REQUIRE(pool == all + 4 * MIB);
	char *private = mmap(all + 8 * MIB, MIB, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	REQUIRE(private == all + 8 * MIB);
	REQUIRE(mprotect(all + 5 * MIB, MIB, PROT_READ | PROT_WRITE) == 0);
	char *places[] = {pool, private, pool + 4096, all + 5 * MIB, pool + 8192};
	for (uint64_t at = 0; at < 5; at++) {
		put(places[at], at + 1);
		REQUIRE(*(volatile uint64_t *)places[at] == at + 1);
	}
	/* Also by the kernel, and in other ways. */
	int file = memfd_create("source", 0);
	REQUIRE(write(file, "abcdefgh", 8) == 8);
	REQUIRE(pread(file, private + 64, 8, 0) == 8 && memcmp(private + 64, "abcdefgh", 8) == 0);
	REQUIRE(pread(file, pool + 64, 8, 0) == 8);
	for (int at = 0; at < 3; at++) {
		memset(places[at] + 128, 0x11, 300);
		__atomic_fetch_add((uint64_t *)(places[at] + 256), 1, __ATOMIC_SEQ_CST);
		REQUIRE(*(uint64_t *)(places[at] + 256) == 0x1111111111111112);
	}
	REQUIRE(munmap(all, 16 * MIB) == 0);
}

/* After a pool: an address that is in use, and a file that is not a pool at an address far from it. */
static void elsewhere(void)
{
	char *pool = map_pool(paths[0], MIB);
	store8(pool, 1);
	int fd = open_pool(paths[0], MIB);
	void *used = (void *)((uintptr_t)&paths & ~4095UL);
	void *refused = mmap(used, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
	REQUIRE(refused == MAP_FAILED && errno == EEXIST);
	char *place = (char *)0x600000000000;
	int file = open_pool(paths[1], MIB);
	REQUIRE(mmap(place, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == place);
	store8(place, 2);
	REQUIRE(*(volatile uint64_t *)place == 2);
	store8(pool + 8, 3);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} all[] = {
		{"two_pools", two_pools},	{"mapped_twice", mapped_twice},
		{"parts", parts},		{"mapped_again", mapped_again},
		{"unmapped_in_part", unmapped_in_part}, {"not_pools", not_pools},
		{"pool_and_others", pool_and_others}, {"sparse", sparse},
		{"protected", protected},	{"removed", removed},
		{"remapped", remapped},		{"reserved", reserved},
		{"elsewhere", elsewhere},
	};
	REQUIRE(argc >= 3);
	paths = argv + 2;
	for (size_t at = 0; at < sizeof(all) / sizeof(*all); at++) {
		if (strcmp(argv[1], all[at].name) == 0) {
			all[at].run();
			return 0;
		}
	}
	return 98;
}
