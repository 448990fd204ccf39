/*
 * Thousands of store instructions that no thread has executed yet, and threads that execute all of them at
 * once. Arguments: pool, threads, and children that are forked meanwhile and execute them, too (default: none).
 * Each thread and child has its own area, and there is one word that all of them add to.
 */
#include <pthread.h>
#include <sys/wait.h>

#include "pool.h"

enum { AREA_LEN = 64 << 10, PER_SITE = 8 };

static char *pool;
static pthread_barrier_t barrier;

/*
 * Instructions of two to eleven bytes, so that jumps to trampolines are made in every way. The long ones
 * contain the offset, the short ones continue from the last one.
 */
#define LONG_SITES(number) \
	at[(number) * PER_SITE] = (char)((number) + 1); \
	__asm__ volatile("" ::: "memory"); \
	*(uint16_t *)(at + (number) * PER_SITE + 2) = (uint16_t)((number) * 3); \
	__asm__ volatile("" ::: "memory"); \
	*(uint32_t *)(at + (number) * PER_SITE + 4) += (number) | 1; \
	__asm__ volatile("" ::: "memory");
#define SHORT_SITES(number) \
	__asm__ volatile("movb %b1, (%0)\n\tmovw %w2, 2(%0)\n\taddl %k3, 4(%0)\n\taddq $8, %0" \
			 : "+a"(place) \
			 : "b"((number) + 1), "c"((number) * 3), "d"((number) | 1) \
			 : "cc", "memory");

#define TIMES_4(sites, number) sites(number) sites((number) + 1) sites((number) + 2) sites((number) + 3)
#define TIMES_16(sites, number) \
	TIMES_4(sites, number) \
	TIMES_4(sites, (number) + 4) TIMES_4(sites, (number) + 8) TIMES_4(sites, (number) + 12)
#define TIMES_64(sites, number) \
	TIMES_16(sites, number) \
	TIMES_16(sites, (number) + 16) TIMES_16(sites, (number) + 32) TIMES_16(sites, (number) + 48) \
	__atomic_fetch_add((uint64_t *)pool, 1, __ATOMIC_SEQ_CST); \
	sfence();

#define FUNCTION(name, sites, number) \
	__attribute__((noinline)) static void name(char *at) \
	{ \
		char *place = at + (number) * PER_SITE; \
		TIMES_64(sites, number) \
		TIMES_64(sites, (number) + 64) \
		TIMES_64(sites, (number) + 128) \
		TIMES_64(sites, (number) + 192) \
		(void)place; \
	}
FUNCTION(first, LONG_SITES, 0)
FUNCTION(second, SHORT_SITES, 256)
FUNCTION(third, LONG_SITES, 512)
FUNCTION(fourth, SHORT_SITES, 768)

enum { SITE_GROUPS = 1024 };

static void execute_all(long area)
{
	char *at = pool + AREA_LEN * (area + 1);
	first(at);
	second(at);
	third(at);
	fourth(at);
}

static void *run(void *number)
{
	int result = pthread_barrier_wait(&barrier);
	REQUIRE(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
	execute_all((long)number);
	return NULL;
}

int main(int argc, char **argv)
{
	REQUIRE(argc == 3 || argc == 4);
	long count = atol(argv[2]);
	long children = argc == 4 ? atol(argv[3]) : 0;
	pthread_t threads[16];
	REQUIRE(count + children <= 15);
	pool = map_pool(argv[1], 2 * MIB);
	REQUIRE(pthread_barrier_init(&barrier, NULL, (unsigned)count) == 0);
	for (long at = 0; at < count; at++)
		REQUIRE(pthread_create(&threads[at], NULL, run, (void *)at) == 0);
	for (long at = 0; at < children; at++) {
		pid_t child = fork();
		REQUIRE(child >= 0);
		if (child == 0) {
			execute_all(count + at);
			_exit(0);
		}
	}
	for (long at = 0; at < count; at++)
		REQUIRE(pthread_join(threads[at], NULL) == 0);
	for (long at = 0; at < children; at++) {
		int status;
		REQUIRE(wait(&status) > 0);
		REQUIRE(status == 0);
	}
	count += children;
	REQUIRE(*(uint64_t *)pool == (uint64_t)count * SITE_GROUPS / 64);
	for (long thread = 1; thread <= count; thread++) {
		for (int site = 0; site < SITE_GROUPS; site++) {
			char *at = pool + AREA_LEN * thread + site * PER_SITE;
			REQUIRE(*at == (char)(site + 1));
			REQUIRE(*(uint16_t *)(at + 2) == (uint16_t)(site * 3));
			REQUIRE(*(uint32_t *)(at + 4) == (uint32_t)(site | 1));
		}
	}
	return 0;
}
