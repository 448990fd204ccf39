/* Stores of several threads or processes to the same bytes, of all sizes, without any order between them.
 * usage: racing HOW POOL COUNT ROUNDS */
#include <cpuid.h>
#include <emmintrin.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "pool.h"

enum { THREADS_MAX = 64, GRANULE = 1024, PAGE = 4096, SPAN = 128, SIGNALS = 200 };

static char *pool;
static int pool_fd;
static long rounds;
static int count;
static pthread_barrier_t barrier;

static int has_clflushopt, has_clwb;

static void ask_processor(void)
{
	unsigned a, b, c, d;
	if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
		has_clflushopt = b >> 23 & 1;
		has_clwb = b >> 24 & 1;
	}
}

static void flush_opt(char *at)
{
	if (has_clflushopt)
		__asm__ volatile("clflushopt %0" : "+m"(*at));
	else
		flush(at);
}

static void write_back(char *at)
{
	if (has_clwb)
		__asm__ volatile("clwb %0" : "+m"(*at));
	else
		flush(at);
}

static uint64_t next(uint64_t *state)
{
	uint64_t x = *state;
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	*state = x;
	return x;
}

/* One store or flush somewhere around a boundary at which what orders stores changes. */
static void store_somewhere(uint64_t *state)
{
	uint64_t x = next(state);
	char *at = pool + GRANULE - SPAN / 2 + (x >> 8) % SPAN;
	void *aligned = (void *)((uintptr_t)at & ~7UL);
	size_t len = (x >> 20) % 64;
	void *to = at;
	const void *from = pool + 64 + (x >> 30) % 512;
	switch (x % 17) {
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
	case 14:
		flush(at);
		break;
	case 15:
		flush_opt(at);
		break;
	case 16:
		write_back(at);
		break;
	}
}

/* Stores and flushes of one word: nothing but races. */
static void store_tightly(uint64_t *state)
{
	uint64_t x = next(state);
	char *at = pool + GRANULE + 64;
	if (x % 4 == 0)
		flush(at);
	else if (x % 4 == 1)
		write_back(at);
	else
		store8(at, x);
}

/* One system call with which the kernel writes to the same bytes. */
static void call_somewhere(uint64_t *state, int ends[2])
{
	uint64_t x = next(state);
	char bytes[SPAN];
	size_t len = 1 + (x >> 20) % (SPAN / 2);
	off_t offset = GRANULE - SPAN / 2 + (off_t)((x >> 8) % (SPAN / 2));
	char *at = pool + offset;
	memset(bytes, (int)(x >> 40), sizeof(bytes));
	switch (x % 5) {
	case 0:
		REQUIRE(write(ends[1], bytes, len) == (ssize_t)len);
		REQUIRE(read(ends[0], at, len) == (ssize_t)len);
		break;
	case 1: {
		char other[8];
		struct iovec parts[3] = {{at, len / 2}, {other, 1}, {at + len, len - len / 2}};
		REQUIRE(write(ends[1], bytes, len + 1) == (ssize_t)len + 1);
		REQUIRE(readv(ends[0], parts, 3) == (ssize_t)len + 1);
		break;
	}
	case 2:
		REQUIRE(write(ends[1], bytes, len) == (ssize_t)len);
		REQUIRE(recv(ends[0], at, len, 0) == (ssize_t)len);
		break;
	case 3:
		REQUIRE(getrandom(at, len, 0) == (ssize_t)len);
		break;
	case 4:
		REQUIRE(pwrite(pool_fd, bytes, len, offset) == (ssize_t)len);
		break;
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

static void *run_tightly(void *number)
{
	uint64_t state = 0x9e3779b97f4a7c15 * ((uint64_t)(long)number + 1);
	pthread_barrier_wait(&barrier);
	for (long round = 0; round < rounds; round++)
		store_tightly(&state);
	return NULL;
}

/* Gives this thread store locks of its own, which are useless: then its recording must be wrong. They are at this offset of
 * what GS points to while a thread is recorded. */
static void take_useless_locks(void)
{
	enum { STORE_LOCKS_AT = 64, TABLE_LEN = 1 << 18 };
	char *block;
	__asm__ volatile("movq %%gs:0, %0" : "=r"(block));
	void *table = mmap(NULL, TABLE_LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(table != MAP_FAILED);
	*(volatile uint64_t *)(block + STORE_LOCKS_AT) = (uint64_t)table;
}

static void *run_sabotaged(void *number)
{
	take_useless_locks();
	return run_tightly(number);
}

/* Every second thread makes system calls. */
static void *run_with_calls(void *number)
{
	uint64_t state = 0x9e3779b97f4a7c15 * ((uint64_t)(long)number + 1);
	int ends[2];
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	pthread_barrier_wait(&barrier);
	for (long round = 0; round < rounds; round++) {
		if ((long)number % 2 == 0)
			call_somewhere(&state, ends);
		else
			for (int at = 0; at < 8; at++)
				store_somewhere(&state);
	}
	close(ends[0]);
	close(ends[1]);
	return NULL;
}

static int is_sabotaged;

/* Every second thread makes the pool durable, the others store meanwhile to what it covers. */
static void *run_with_syncs(void *number)
{
	uint64_t state = 0x9e3779b97f4a7c15 * ((uint64_t)(long)number + 1);
	if (is_sabotaged && (long)number % 2 == 1)
		take_useless_locks();
	pthread_barrier_wait(&barrier);
	if ((long)number % 2 == 0) {
		for (long round = 0; round < rounds; round++) {
			if (round % 3 == 0)
				REQUIRE(msync(pool + PAGE, PAGE, MS_SYNC) == 0);
			else if (round % 3 == 1)
				REQUIRE(fsync(pool_fd) == 0);
			else
				REQUIRE(fdatasync(pool_fd) == 0);
		}
	} else {
		for (long round = 0; round < 100 * rounds; round++)
			store8(pool + (round % 2 ? PAGE : 0), next(&state));
	}
	return NULL;
}

static volatile long turn;

/* The threads store one after the other, each to a place of its own. What passes the turn on is volatile memory, of which
 * nothing is recorded. */
static void *run_in_turns(void *number)
{
	enum { STORES = 3 };
	pthread_barrier_wait(&barrier);
	for (long round = 0; round < rounds; round++) {
		long own = round * count + (long)number;
		while (turn != own)
			sched_yield();
		for (long at = 0; at < STORES; at++)
			store8(pool + ((long)number + 1) * GRANULE, (uint64_t)(own * STORES + at));
		turn = own + 1;
	}
	return NULL;
}

static void threads(void *(*run)(void *))
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

/* Processes that all store, and then wait until all have stored. */
static void waiting(void)
{
	int ready[2], go[2];
	char byte;
	REQUIRE(pipe(ready) == 0 && pipe(go) == 0);
	for (long at = 0; at < count; at++) {
		pid_t child = fork();
		REQUIRE(child >= 0);
		if (child == 0) {
			uint64_t state = 0x9e3779b97f4a7c15 * ((uint64_t)at + 1);
			close(go[1]);
			for (long round = 0; round < rounds; round++)
				store_somewhere(&state);
			REQUIRE(write(ready[1], "", 1) == 1);
			REQUIRE(read(go[0], &byte, 1) == 0);
			store_somewhere(&state);
			_exit(0);
		}
	}
	for (long at = 0; at < count; at++)
		REQUIRE(read(ready[0], &byte, 1) == 1);
	close(go[1]);
	for (long at = 0; at < count; at++) {
		int status;
		REQUIRE(wait(&status) > 0 && status == 0);
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
	ask_processor();
	pool_fd = open_pool(argv[2], 2 * MIB);
	pool = map_fd(pool_fd, 2 * MIB, 0);
	count = atoi(argv[3]);
	rounds = atol(argv[4]);
	if (strcmp(argv[1], "threads") == 0)
		threads(run);
	else if (strcmp(argv[1], "tight") == 0)
		threads(run_tightly);
	else if (strcmp(argv[1], "turns") == 0)
		threads(run_in_turns);
	else if (strcmp(argv[1], "sabotaged") == 0)
		threads(run_sabotaged);
	else if (strcmp(argv[1], "calls") == 0)
		threads(run_with_calls);
	else if (strcmp(argv[1], "syncs") == 0)
		threads(run_with_syncs);
	else if (strcmp(argv[1], "sabotaged-syncs") == 0) {
		is_sabotaged = 1;
		threads(run_with_syncs);
	} else if (strcmp(argv[1], "processes") == 0)
		processes();
	else if (strcmp(argv[1], "killed") == 0)
		killed();
	else if (strcmp(argv[1], "waiting") == 0)
		waiting();
	else
		handlers();
	return 0;
}
