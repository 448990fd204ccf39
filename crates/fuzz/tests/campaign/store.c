/*
 * A store with planted bugs. Arguments: the pool, and the letters of its bugs. A fuzzer that searches for one
 * of them would sooner or later find all others, too. Commands on standard input, one letter each:
 *
 *   a..e  count an item; the sum is stored beside the counts
 *   u     uses the reservation
 *   r     reserves; can be interrupted
 *
 * Bugs, which have no effect unless they are planted:
 *
 *   u     aborts if a reservation was interrupted (nothing else aborts)
 *   !w    swaps the two halves of a pair, in an order that a crash shows: recovery aborts
 *   !x    aborts       !h    runs forever        !f    leaves a process behind
 *   !g    writes a large file beside the pool
 */
#define _GNU_SOURCE
#include <emmintrin.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { POOL = 16384, MAGIC = 0x53544f52 };

struct pool {
	uint64_t magic;
	uint64_t counts[5];
	uint64_t sum;
	char gap[8];
	uint64_t left;
	char gap2[56];
	uint64_t right;
	char gap3[56];
	uint64_t reserving;
	char gap4[56];
};

static struct pool *pool;
static const char *planted;

static void persist(const void *start, size_t len)
{
	uintptr_t line = (uintptr_t)start & ~63ul;
	for (; line < (uintptr_t)start + len; line += 64)
		_mm_clflush((const void *)line);
	_mm_sfence();
}

static void open_pool(const char *path)
{
	int file = open(path, O_RDWR | O_CREAT, 0600);
	if (file < 0 || ftruncate(file, POOL) != 0)
		exit(3);
	pool = mmap(NULL, POOL, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (pool == MAP_FAILED)
		exit(3);
	close(file);
	if (pool->magic != MAGIC) {
		pool->left = 1;
		pool->right = 2;
		persist(pool, sizeof(*pool));
		pool->magic = MAGIC;
		persist(&pool->magic, 8);
	}
	/* Recovery: the two halves must differ. */
	if (pool->left == pool->right)
		abort();
}

static void misbehave(int letter, const char *path)
{
	char beside[4096];
	if (!strchr(planted, letter))
		return;
	switch (letter) {
	case 'w': {
		uint64_t left = pool->left;
		pool->left = pool->right;
		persist(&pool->left, 8);
		pool->right = left;
		persist(&pool->right, 8);
		break;
	}
	case 'x':
		abort();
	case 'h':
		for (volatile int forever = 1; forever;)
			;
		break;
	case 'f':
		if (fork() == 0) {
			setsid();
			pause();
			_exit(0);
		}
		break;
	case 'g': {
		snprintf(beside, sizeof(beside), "%s.large", path);
		int file = open(beside, O_WRONLY | O_CREAT, 0600);
		static char bytes[1 << 20];
		while (write(file, bytes, sizeof(bytes)) == sizeof(bytes))
			;
		close(file);
		break;
	}
	}
}

static void command(int letter)
{
	switch (letter) {
	case 'a' ... 'e':
		pool->counts[letter - 'a']++;
		persist(&pool->counts[letter - 'a'], 8);
		pool->sum++;
		persist(&pool->sum, 8);
		break;
	case 'r':
		pool->reserving = 1;
		persist(&pool->reserving, 8);
		pool->reserving = 0;
		persist(&pool->reserving, 8);
		break;
	case 'u':
		if (pool->reserving && strchr(planted, 'u'))
			abort();
		break;
	}
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	planted = argv[2];
	open_pool(argv[1]);
	char input[256];
	ssize_t len = read(0, input, sizeof(input));
	for (ssize_t at = 0; at < len; at++) {
		if (input[at] == '!' && at + 1 < len)
			misbehave(input[++at], argv[1]);
		else
			command(input[at]);
	}
	return 0;
}
