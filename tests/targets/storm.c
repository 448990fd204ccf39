/*
 * Storms of children and of signals. Arguments: test, pool, count.
 *
 * Children store to the pool of their parent and end by themselves or by a signal, several at a time. The
 * parent checks their results.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "pool.h"

enum { AT_ONCE = 8, STRIDE = 64, COUNTER = 0, AREA = 4096, FAN = 3 };

static char *pool;
static int count;

static uint64_t read8(const char *at)
{
	return *(const volatile uint64_t *)at;
}

/* The stores of a child to its own line before it ends. */
static void leave_trace(int number)
{
	char *line = pool + AREA + STRIDE * number;
	for (uint64_t step = 1; step <= 5; step++) {
		store8(line, step);
		*(volatile uint64_t *)(line + 8) += step;
	}
	flush(line);
	sfence();
	__atomic_fetch_add((uint64_t *)(pool + COUNTER), 1, __ATOMIC_SEQ_CST);
}

static void check_trace(int number)
{
	char *line = pool + AREA + STRIDE * number;
	REQUIRE(read8(line) == 5 && read8(line + 8) == 15);
}

/* How a child ends: by itself, with everything that exit does, by its own signal, or by ours. */
static void end(int number)
{
	switch (number % 4) {
	case 0:
		_exit(0);
	case 1:
		exit(0);
	case 2:
		raise(SIGKILL);
		break;
	}
	/* Stores until it is killed, and yields in between, to keep the trace short. */
	char *line = pool + AREA + STRIDE * number;
	for (uint64_t round = 1;; round++) {
		store8(line + 16, round);
		memset(line + 24, (int)round, 40);
		if (round % 8 == 0)
			sched_yield();
	}
}

static void children(void)
{
	for (int first = 0; first < count; first += AT_ONCE) {
		pid_t pids[AT_ONCE];
		for (int at = 0; at < AT_ONCE; at++) {
			pids[at] = fork();
			REQUIRE(pids[at] >= 0);
			if (pids[at] == 0) {
				leave_trace(first + at);
				end(first + at);
			}
		}
		for (int at = 3; at < AT_ONCE; at += 4) {
			while (read8(pool + AREA + STRIDE * (first + at) + 16) == 0)
				sched_yield();
			REQUIRE(kill(pids[at], SIGKILL) == 0);
		}
		for (int at = 0; at < AT_ONCE; at++) {
			int number = first + at, status;
			REQUIRE(waitpid(pids[at], &status, 0) == pids[at]);
			REQUIRE(number % 4 < 2 ? status == 0 : WTERMSIG(status) == SIGKILL);
			check_trace(number);
		}
	}
	REQUIRE(read8(pool + COUNTER) == (uint64_t)count);
}

/* Children have children, down to a given depth: all of them store, and the parents do not wait. */
static int next_number(void)
{
	return (int)__atomic_fetch_add((uint64_t *)(pool + 64), 1, __ATOMIC_SEQ_CST);
}

static void multiply(int depth)
{
	leave_trace(next_number());
	if (depth == 0)
		return;
	for (int at = 0; at < FAN; at++) {
		pid_t child = fork();
		REQUIRE(child >= 0);
		if (child == 0) {
			multiply(depth - 1);
			while (wait(NULL) > 0)
				;
			_exit(0);
		}
	}
}

static void generations(void)
{
	int all = 0, level = 1;
	for (int depth = count; depth >= 0; depth--, level *= FAN)
		all += level;
	multiply(count);
	while (wait(NULL) > 0)
		;
	REQUIRE(read8(pool + COUNTER) == (uint64_t)all);
	for (int number = 0; number < all; number++)
		check_trace(number);
	printf("%d\n", all);
}

/* Timers that interrupt several threads every 100 microseconds, with handlers that store. */
static volatile int is_over;
static uint64_t ticks;
static __thread uint64_t own_ticks;
static __thread char *own_line;

static void on_tick(int number)
{
	(void)number;
	if (own_line == NULL || is_over)
		return;
	store8(own_line, ++own_ticks);
	*(volatile uint64_t *)(own_line + 8) += 1;
	memset(own_line + 16, (int)own_ticks, 48);
	flush(own_line);
	sfence();
	__atomic_fetch_add((uint64_t *)(pool + COUNTER), 1, __ATOMIC_SEQ_CST);
	if (__atomic_add_fetch(&ticks, 1, __ATOMIC_SEQ_CST) >= (uint64_t)count)
		is_over = 1;
}

static void *interrupted(void *number)
{
	char *area = pool + 65536 + 8192 * (long)number;
	uint64_t round = 0;
	own_line = pool + AREA + STRIDE * (long)number;
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
	event._sigev_un._tid = gettid();
	timer_t timer;
	REQUIRE(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	struct itimerspec every = {{0, 100000}, {0, 100000}};
	REQUIRE(timer_settime(timer, 0, &every, NULL) == 0);
	while (!is_over) {
		round++;
		store8(area, round);
		*(volatile uint64_t *)(area + 64) += 3;
		__atomic_fetch_add((uint64_t *)(area + 128), 1, __ATOMIC_SEQ_CST);
		memset(area + 256, (int)round, 700);
		memcpy(area + 1024, area + 256, 700);
		flush(area);
		sfence();
		REQUIRE(read8(area) == round && read8(area + 64) == 3 * round);
		REQUIRE(memcmp(area + 1024, area + 256, 700) == 0);
	}
	REQUIRE(timer_delete(timer) == 0);
	REQUIRE(read8(area + 128) == round);
	REQUIRE(read8(own_line) == own_ticks && read8(own_line + 8) == own_ticks);
	return NULL;
}

static void timers(void)
{
	struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
	REQUIRE(sigaction(SIGUSR1, &action, NULL) == 0);
	pthread_t threads[2];
	for (long at = 0; at < 2; at++)
		REQUIRE(pthread_create(&threads[at], NULL, interrupted, (void *)at) == 0);
	for (long at = 0; at < 2; at++)
		REQUIRE(pthread_join(threads[at], NULL) == 0);
	REQUIRE(read8(pool + COUNTER) == ticks);
	printf("%lu\n", ticks);
}

int main(int argc, char **argv)
{
	REQUIRE(argc == 4);
	pool = map_pool(argv[2], MIB);
	count = atoi(argv[3]);
	if (strcmp(argv[1], "children") == 0)
		children();
	else if (strcmp(argv[1], "generations") == 0)
		generations();
	else if (strcmp(argv[1], "timers") == 0)
		timers();
	else
		return 98;
	return 0;
}
