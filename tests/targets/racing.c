/* Stores of several threads or processes to the same bytes, of all sizes, without any order between them.
 * usage: racing HOW POOL COUNT ROUNDS */
#include <emmintrin.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>

#include "pool.h"

enum { THREADS_MAX = 64, GRANULE = 1024, SPAN = 128, SIGNALS = 200 };

static char *pool;
static long rounds;
static int count;
static pthread_barrier_t barrier;

/* One store somewhere around a boundary at which what orders stores changes. */
static void store_somewhere(uint64_t *state)
{
	uint64_t x = *state;
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	*state = x;
	char *at = pool + GRANULE - SPAN / 2 + (x >> 8) % SPAN;
	void *aligned = (void *)((uintptr_t)at & ~7UL);
	size_t len = (x >> 20) % 64;
	void *to = at;
	const void *from = pool + 64 + (x >> 30) % 512;
	switch (x % 14) {
	case 0:
		__atomic_store_n((uint8_t *)at, (uint8_t)x, __ATOMIC_RELAXED);
		break;
	case 1:
		*(volatile uint16_t *)at = (uint16_t)x;
		break;
	case 2:
		*(volatile uint32_t *)at = (uint32_t)x;
		break;
	case 3:
		__atomic_store_n((uint64_t *)aligned, x, __ATOMIC_RELAXED);
		break;
	case 4:
		store8(at, x);
		break;
	case 5:
		__asm__ volatile("addl %1, %0" : "+m"(*(uint32_t *)at) : "r"((uint32_t)x) : "cc");
		break;
	case 6:
		__atomic_fetch_add((uint64_t *)aligned, x, __ATOMIC_RELAXED);
		break;
	case 7:
		__atomic_exchange_n((uint32_t *)aligned, (uint32_t)x, __ATOMIC_RELAXED);
		break;
	case 8:
		_mm_storeu_si128((__m128i *)at, _mm_set1_epi64x((long long)x));
		break;
	case 9:
		_mm_stream_si64(aligned, (long long)x);
		break;
	case 10:
		__asm__ volatile("rep stosb" : "+D"(to), "+c"(len) : "a"((int)x) : "memory");
		break;
	case 11:
		__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(len) : : "memory");
		break;
	case 12: {
		uint64_t expected = __atomic_load_n((uint64_t *)aligned, __ATOMIC_RELAXED);
		__atomic_compare_exchange_n((uint64_t *)aligned, &expected, x, 0, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED);
		break;
	}
	case 13: {
		/* Has no trampoline. */
		__m128i mask = _mm_set1_epi16((short)(x | 0x80));
		_mm_maskmoveu_si128(_mm_set1_epi64x((long long)x), mask, at);
		break;
	}
	}
}

static void *run(void *number)
{
	uint64_t state = 0x9e3779b97f4a7c15 * ((uint64_t)(long)number + 1);
	pthread_barrier_wait(&barrier);
	for (long round = 0; round < rounds; round++)
		store_somewhere(&state);
	return NULL;
}

static void threads(void)
{
	pthread_t threads[THREADS_MAX];
	REQUIRE(count <= THREADS_MAX);
	pthread_barrier_init(&barrier, NULL, (unsigned)count);
	for (long at = 0; at < count; at++)
		REQUIRE(pthread_create(&threads[at], NULL, run, (void *)at) == 0);
	for (long at = 0; at < count; at++)
		REQUIRE(pthread_join(threads[at], NULL) == 0);
}

static void processes(void)
{
	for (long at = 0; at < count; at++) {
		pid_t child = fork();
		REQUIRE(child >= 0);
		if (child == 0) {
			uint64_t state = 0x9e3779b97f4a7c15 * ((uint64_t)at + 1);
			for (long round = 0; round < rounds; round++)
				store_somewhere(&state);
			_exit(0);
		}
	}
	for (long at = 0; at < count; at++) {
		int status;
		REQUIRE(wait(&status) > 0 && status == 0);
	}
}

/* Processes that are killed while they store: what they held must not stop the others. */
static void killed(void)
{
	for (long at = 0; at < count; at++) {
		int ends[2];
		REQUIRE(pipe(ends) == 0);
		pid_t child = fork();
		REQUIRE(child >= 0);
		uint64_t state = 0x9e3779b97f4a7c15 * ((uint64_t)at + 1);
		if (child == 0) {
			for (long round = 0;; round++) {
				store_somewhere(&state);
				if (round == rounds)
					REQUIRE(write(ends[1], "", 1) == 1);
			}
		}
		char byte;
		REQUIRE(read(ends[0], &byte, 1) == 1);
		REQUIRE(kill(child, SIGKILL) == 0);
		state += 1;
		for (long round = 0; round < rounds; round++)
			store_somewhere(&state);
		REQUIRE(waitpid(child, NULL, 0) == child);
		close(ends[0]);
		close(ends[1]);
	}
}

static _Thread_local sigjmp_buf start;
static _Thread_local volatile sig_atomic_t is_inside;
static _Thread_local uint64_t handler_state;

/* Stores to the same bytes, and returns or jumps away. */
static void on_signal(int signal)
{
	(void)signal;
	for (int at = 0; at < 4; at++)
		store_somewhere(&handler_state);
	if (is_inside && handler_state % 2 == 0)
		siglongjmp(start, 1);
}

static void *run_with_signals(void *number)
{
	volatile uint64_t state = 0x9e3779b97f4a7c15 * ((uint64_t)(long)number + 1);
	volatile long round = 0;
	handler_state = state + 1;
	pthread_barrier_wait(&barrier);
	sigsetjmp(start, 1);
	is_inside = 1;
	while (round < rounds) {
		uint64_t own = state;
		store_somewhere(&own);
		state = own;
		round++;
	}
	is_inside = 0;
	/* Signals are sent to threads that exist. */
	pthread_barrier_wait(&barrier);
	return NULL;
}

static void handlers(void)
{
	struct sigaction action = {.sa_handler = on_signal};
	pthread_t threads[THREADS_MAX];
	REQUIRE(count <= THREADS_MAX);
	REQUIRE(sigaction(SIGUSR1, &action, NULL) == 0);
	pthread_barrier_init(&barrier, NULL, (unsigned)count + 1);
	for (long at = 0; at < count; at++)
		REQUIRE(pthread_create(&threads[at], NULL, run_with_signals, (void *)at) == 0);
	pthread_barrier_wait(&barrier);
	/* Not without end: a handler that is slower than the sender would leave its thread no time. */
	for (int sent = 0; sent < SIGNALS; sent++)
		for (long at = 0; at < count; at++)
			pthread_kill(threads[at], SIGUSR1);
	pthread_barrier_wait(&barrier);
	for (long at = 0; at < count; at++)
		REQUIRE(pthread_join(threads[at], NULL) == 0);
}

int main(int argc, char **argv)
{
	REQUIRE(argc == 5);
	pool = map_pool(argv[2], 2 * MIB);
	count = atoi(argv[3]);
	rounds = atol(argv[4]);
	if (strcmp(argv[1], "threads") == 0)
		threads();
	else if (strcmp(argv[1], "processes") == 0)
		processes();
	else if (strcmp(argv[1], "killed") == 0)
		killed();
	else
		handlers();
	return 0;
}
