/* Threads on one pool. The first argument selects the test, the third is the number of threads. */
#include <pthread.h>

#include "pool.h"

enum { COUNTER_ROUNDS = 2000, QUEUE_ROUNDS = 500, QUEUE_CELLS = 64, STACK_LEN = 64 << 10 };

static char *pool;
static int thread_count;

static void run(void *(*routine)(void *))
{
	pthread_t threads[64];
	for (long at = 0; at < thread_count; at++)
		REQUIRE(pthread_create(&threads[at], NULL, routine, (void *)at) == 0);
	for (long at = 0; at < thread_count; at++)
		REQUIRE(pthread_join(threads[at], NULL) == 0);
}

/* All add to one counter, and each stores the value that it saw. */
static void *add(void *number)
{
	uint64_t *counter = (uint64_t *)pool;
	uint64_t *mine = (uint64_t *)(pool + 4096 + 64 * (long)number);
	for (int round = 0; round < COUNTER_ROUNDS; round++) {
		uint64_t before = __atomic_fetch_add(counter, 1, __ATOMIC_SEQ_CST);
		store8(mine, before + 1);
		flush(mine);
		sfence();
	}
	return NULL;
}

/* All replace one word with its successor; the ones that fail try again. */
static void *swap(void *number)
{
	uint64_t *word = (uint64_t *)(pool + 128);
	(void)number;
	for (int round = 0; round < COUNTER_ROUNDS; round++) {
		uint64_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);
		while (!__atomic_compare_exchange_n(word, &seen, seen + 1, 0, __ATOMIC_SEQ_CST,
						    __ATOMIC_RELAXED))
			;
	}
	return NULL;
}

/* Plain stores of all threads to one word: the last one must be last in the trace. */
static void *race(void *number)
{
	for (int round = 0; round < COUNTER_ROUNDS; round++) {
		store8(pool, ((uint64_t)(long)number << 32) | (unsigned)round);
		store8(pool + 4 + round % 8, ~(uint64_t)round);
	}
	return NULL;
}

/* A bounded queue for many producers and consumers, after Dmitry Vyukov. */
struct cell {
	uint64_t sequence;
	uint64_t value;
};

static struct queue {
	_Alignas(64) uint64_t tail;
	_Alignas(64) uint64_t head;
	_Alignas(64) struct cell cells[QUEUE_CELLS];
} *queue;

static int push(uint64_t value)
{
	uint64_t at = __atomic_load_n(&queue->tail, __ATOMIC_RELAXED);
	for (;;) {
		struct cell *cell = &queue->cells[at % QUEUE_CELLS];
		int64_t ahead = (int64_t)(__atomic_load_n(&cell->sequence, __ATOMIC_ACQUIRE) - at);
		if (ahead == 0) {
			if (__atomic_compare_exchange_n(&queue->tail, &at, at + 1, 0, __ATOMIC_SEQ_CST,
							__ATOMIC_RELAXED)) {
				cell->value = value;
				__atomic_store_n(&cell->sequence, at + 1, __ATOMIC_RELEASE);
				return 1;
			}
		} else if (ahead < 0) {
			return 0;
		} else {
			at = __atomic_load_n(&queue->tail, __ATOMIC_RELAXED);
		}
	}
}

static int pop(uint64_t *value)
{
	uint64_t at = __atomic_load_n(&queue->head, __ATOMIC_RELAXED);
	for (;;) {
		struct cell *cell = &queue->cells[at % QUEUE_CELLS];
		int64_t ahead = (int64_t)(__atomic_load_n(&cell->sequence, __ATOMIC_ACQUIRE) - at - 1);
		if (ahead == 0) {
			if (__atomic_compare_exchange_n(&queue->head, &at, at + 1, 0, __ATOMIC_SEQ_CST,
							__ATOMIC_RELAXED)) {
				*value = cell->value;
				__atomic_store_n(&cell->sequence, at + QUEUE_CELLS, __ATOMIC_RELEASE);
				return 1;
			}
		} else if (ahead < 0) {
			return 0;
		} else {
			at = __atomic_load_n(&queue->head, __ATOMIC_RELAXED);
		}
	}
}

static uint64_t taken_sum;

static void *pass_on(void *number)
{
	for (uint64_t round = 0; round < QUEUE_ROUNDS; round++) {
		uint64_t value;
		while (!push((uint64_t)(long)number * QUEUE_ROUNDS + round + 1))
			sched_yield();
		while (!pop(&value))
			sched_yield();
		__atomic_fetch_add(&taken_sum, value, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

/* Many threads that make only one store each. */
static void *live_shortly(void *number)
{
	store8(pool + 8 * (long)number, (uint64_t)(long)number + 1);
	return NULL;
}

static void churn(void)
{
	pthread_attr_t attributes;
	REQUIRE(pthread_attr_init(&attributes) == 0);
	REQUIRE(pthread_attr_setstacksize(&attributes, STACK_LEN) == 0);
	for (long at = 0; at < thread_count; at += 4) {
		pthread_t threads[4];
		for (long i = 0; i < 4; i++)
			REQUIRE(pthread_create(&threads[i], &attributes, live_shortly, (void *)(at + i)) == 0);
		for (long i = 0; i < 4; i++)
			REQUIRE(pthread_join(threads[i], NULL) == 0);
	}
}

/* Thread-specific values whose destructors store. */
static pthread_key_t key;

static void at_end(void *place)
{
	store8(place, 0xdead);
	flush(place);
	sfence();
}

static void *with_destructor(void *number)
{
	char *place = pool + 64 * (long)number;
	REQUIRE(pthread_setspecific(key, place) == 0);
	store8(place, 1);
	if ((long)number % 2)
		pthread_exit(NULL);
	return NULL;
}

/* Threads that are never joined, the last of which ends the process. */
static void *detached(void *number)
{
	store8(pool + 64 * (long)number, 7);
	if (__atomic_add_fetch((int *)(pool + 4096), 1, __ATOMIC_SEQ_CST) == thread_count)
		exit(0);
	pthread_exit(NULL);
}

/* A thread is cancelled while it waits, and its clean-up stores. */
static void clean_up(void *place)
{
	store8(place, 0xc1ea);
}

static void *cancelled(void *number)
{
	pthread_cleanup_push(clean_up, pool + 64 * (long)number);
	store8(pool + 64 * (long)number, 1);
	for (;;)
		pause();
	pthread_cleanup_pop(0);
	return NULL;
}

int main(int argc, char **argv)
{
	REQUIRE(argc == 4);
	pool = map_pool(argv[2], MIB);
	thread_count = atoi(argv[3]);
	if (strcmp(argv[1], "add") == 0) {
		run(add);
		REQUIRE(*(uint64_t *)pool == (uint64_t)thread_count * COUNTER_ROUNDS);
	} else if (strcmp(argv[1], "swap") == 0) {
		run(swap);
		REQUIRE(*(uint64_t *)(pool + 128) == (uint64_t)thread_count * COUNTER_ROUNDS);
	} else if (strcmp(argv[1], "race") == 0) {
		run(race);
	} else if (strcmp(argv[1], "queue") == 0) {
		queue = (struct queue *)(pool + 8192);
		for (uint64_t at = 0; at < QUEUE_CELLS; at++)
			queue->cells[at].sequence = at;
		run(pass_on);
		uint64_t all = (uint64_t)thread_count * QUEUE_ROUNDS;
		REQUIRE(taken_sum == all * (all + 1) / 2);
	} else if (strcmp(argv[1], "churn") == 0) {
		churn();
	} else if (strcmp(argv[1], "destructors") == 0) {
		REQUIRE(pthread_key_create(&key, at_end) == 0);
		run(with_destructor);
	} else if (strcmp(argv[1], "detached") == 0) {
		for (long at = 0; at < thread_count; at++) {
			pthread_t thread;
			REQUIRE(pthread_create(&thread, NULL, detached, (void *)at) == 0);
			REQUIRE(pthread_detach(thread) == 0);
		}
		pthread_exit(NULL);
	} else if (strcmp(argv[1], "cancelled") == 0) {
		for (long at = 0; at < thread_count; at++) {
			pthread_t thread;
			void *result;
			REQUIRE(pthread_create(&thread, NULL, cancelled, (void *)at) == 0);
			while (*(volatile uint64_t *)(pool + 64 * at) == 0)
				sched_yield();
			REQUIRE(pthread_cancel(thread) == 0);
			REQUIRE(pthread_join(thread, &result) == 0);
			REQUIRE(result == PTHREAD_CANCELED);
		}
	} else {
		return 98;
	}
	return 0;
}
