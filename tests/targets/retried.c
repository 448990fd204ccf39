/*
 * Locked operations that a handler interrupts between their load and their exchange. The handler changes the
 * loaded value, so that they must be retried.
 *
 * Every operation is the first on its page: its load makes the page readable only, if the pool is in a file
 * system that tracks changes, so its exchange takes the time of a page fault, and nearly every signal arrives
 * there. (On other file systems, few do.)
 *
 * The arguments are the operation, the pool, and the required number of signals. Prints the number of
 * operations.
 */
#include <signal.h>
#include <time.h>

#include "pool.h"

enum {
	PAGE = 4096,
	PAGES = 1 << 14,
	/* More than a buffer of records can hold. */
	BULK_LEN = 300 << 10,
	/* One of this many handlers makes that many stores. */
	BULK_EVERY = 8,
};

static char *pool, *bulk;
static int fd;
static timer_t timer;
static long wanted;
static volatile sig_atomic_t handled;
static volatile uint64_t *volatile current;

static void add(void)
{
	uint64_t one = 1;
	__asm__ volatile("lock xaddq %0, %1" : "+r"(one), "+m"(*current)::"memory");
}

static void increment(void)
{
	__asm__ volatile("lock incl %0" : "+m"(*(volatile uint32_t *)current)::"memory");
}

static void swap(void)
{
	uint64_t seen = *current;
	while (!__atomic_compare_exchange_n(current, &seen, seen + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		;
}

static void swap_pair(void)
{
	uint64_t low = current[0], high = current[1];
	char done;
	do {
		__asm__ volatile("lock cmpxchg16b %1\n\tsete %0"
				 : "=q"(done), "+m"(*(volatile __int128 *)current), "+a"(low), "+d"(high)
				 : "b"(low + 1), "c"(~low)
				 : "memory", "cc");
	} while (!done);
}

static void (*operation)(void);

/* Returns when the host has read everything recorded so far. It answers a request to map a pool after it has
 * checked the positions of threads, and reads their records before it answers again. */
static void wait_for_host(void)
{
	for (int round = 0; round < 2; round++) {
		void *again = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		REQUIRE(again != MAP_FAILED && munmap(again, PAGE) == 0);
	}
}

/* The next signal arrives soon, at another moment each time. */
static void set_timer(void)
{
	struct itimerspec soon = {.it_value.tv_nsec = 20000 + 1237 * (handled % 64)};
	REQUIRE(timer_settime(timer, 0, &soon, NULL) == 0);
}

static void handle(int signal)
{
	void *to = bulk;
	size_t count = handled % BULK_EVERY == 0 ? BULK_LEN : 0;
	(void)signal;
	operation();
	__asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"((int)handled) : "memory");
	wait_for_host();
	handled++;
	if (handled < wanted)
		set_timer();
}

int main(int count, char **arguments)
{
	static const struct {
		const char *name;
		void (*operation)(void);
	} operations[] = {{"add", add}, {"increment", increment}, {"swap", swap}, {"swap_pair", swap_pair}};
	struct sigaction action = {.sa_handler = handle};
	const size_t len = (size_t)PAGES * PAGE;
	int made = 0;

	REQUIRE(count == 4);
	for (size_t at = 0; at < sizeof operations / sizeof *operations; at++)
		if (strcmp(arguments[1], operations[at].name) == 0)
			operation = operations[at].operation;
	REQUIRE(operation);
	wanted = atol(arguments[3]);
	fd = open_pool(arguments[2], len + BULK_LEN);
	pool = map_fd(fd, len + BULK_LEN, 0);
	bulk = pool + len;
	current = (volatile uint64_t *)pool;
	REQUIRE(sigaction(SIGALRM, &action, NULL) == 0);
	REQUIRE(timer_create(CLOCK_MONOTONIC, NULL, &timer) == 0);
	set_timer();
	for (; handled < wanted; made++) {
		current = (volatile uint64_t *)(pool + (size_t)(made % PAGES) * PAGE);
		operation();
	}
	printf("%d\n", made + (int)handled);
	return 0;
}
