/*
 * Threads that wait for each other in all sorts of ways between their stores: SCENARIO POOL.
 *
 * Every store writes a number that identifies its thread and its position in the thread, so that the order of
 * a recording can be determined.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pool.h"

#define THREADS 3
#define STORES 8

static volatile uint64_t *pool;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_barrier_t barrier;
static sem_t semaphore;
static uint64_t turn;
static atomic_int flag;

static void store(uint64_t who, uint64_t number)
{
	pool[8 * who] = who << 32 | number;
	flush(&pool[8 * who]);
	sfence();
}

static void *plainly(void *who)
{
	for (uint64_t i = 0; i < STORES; i++)
		store((uintptr_t)who, i);
	return NULL;
}

static void *locked(void *who)
{
	for (uint64_t i = 0; i < STORES; i++) {
		pthread_mutex_lock(&mutex);
		store((uintptr_t)who, i);
		pool[1] = pool[1] + 1;
		flush(&pool[1]);
		pthread_mutex_unlock(&mutex);
	}
	return NULL;
}

/* The threads take turns, signalled by a condition variable. */
static void *in_turn(void *who)
{
	for (uint64_t i = 0; i < STORES; i++) {
		pthread_mutex_lock(&mutex);
		while (turn % THREADS + 1 != (uintptr_t)who)
			pthread_cond_wait(&condition, &mutex);
		store((uintptr_t)who, i);
		turn++;
		pthread_cond_broadcast(&condition);
		pthread_mutex_unlock(&mutex);
	}
	return NULL;
}

static void *other_locks(void *who)
{
	for (uint64_t i = 0; i < STORES; i++) {
		pthread_rwlock_rdlock(&rwlock);
		store((uintptr_t)who, 3 * i);
		pthread_rwlock_unlock(&rwlock);
		pthread_rwlock_wrlock(&rwlock);
		store((uintptr_t)who, 3 * i + 1);
		pthread_rwlock_unlock(&rwlock);
		pthread_spin_lock(&spin);
		store((uintptr_t)who, 3 * i + 2);
		pthread_spin_unlock(&spin);
		sem_wait(&semaphore);
		sem_post(&semaphore);
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

static void *sleeping(void *who)
{
	struct timespec time = { 0, 3000000 };
	for (uint64_t i = 0; i < STORES; i++) {
		store((uintptr_t)who, i);
		if ((uintptr_t)who == 1)
			nanosleep(&time, NULL);
		else if ((uintptr_t)who == 2)
			syscall(SYS_nanosleep, &time, NULL);
	}
	return NULL;
}

/* The first thread waits for the last by spinning on memory outside the pool. */
static void *spinning(void *who)
{
	if ((uintptr_t)who == 1)
		while (!atomic_load(&flag))
			;
	if ((uintptr_t)who == 2)
		while (!atomic_load(&flag))
			sched_yield();
	plainly(who);
	if ((uintptr_t)who == THREADS)
		atomic_store(&flag, 1);
	return NULL;
}

static int ends[2];

static void *piped(void *who)
{
	char letter = 'x';
	for (uint64_t i = 0; i < STORES; i++) {
		if ((uintptr_t)who == 1 && read(ends[0], &letter, 1) != 1)
			return who;
		store((uintptr_t)who, i);
		if ((uintptr_t)who == 2 && write(ends[1], &letter, 1) != 1)
			return who;
	}
	return NULL;
}

static void *nesting(void *who)
{
	pthread_t child;
	store((uintptr_t)who, 0);
	if ((uintptr_t)who < THREADS) {
		pthread_create(&child, NULL, nesting, (void *)((uintptr_t)who + 1));
		store((uintptr_t)who, 1);
		pthread_join(child, NULL);
	}
	store((uintptr_t)who, 2);
	return NULL;
}

static void *forking(void *who)
{
	store((uintptr_t)who, 0);
	if ((uintptr_t)who == 2) {
		int status;
		pid_t child = fork();
		if (child == 0) {
			store(THREADS + 1, 0);
			store(THREADS + 1, 1);
			_exit(0);
		}
		waitpid(child, &status, 0);
	}
	store((uintptr_t)who, 1);
	return NULL;
}

static void unlock(void *unused)
{
	(void)unused;
	pthread_mutex_unlock(&mutex);
}

/* A thread that is cancelled by others while it waits. */
static void *cancelled(void *who)
{
	store((uintptr_t)who, 0);
	if ((uintptr_t)who == 1) {
		pthread_mutex_lock(&mutex);
		pthread_cleanup_push(unlock, NULL);
		for (;;)
			pthread_cond_wait(&condition, &mutex);
		pthread_cleanup_pop(1);
	}
	if ((uintptr_t)who == 2)
		for (;;)
			sem_wait(&semaphore);
	store((uintptr_t)who, 1);
	return NULL;
}

static const struct {
	const char *name;
	void *(*routine)(void *);
	int threads;
} scenarios[] = {
	{ "plain", plainly, THREADS },     { "mutex", locked, THREADS },
	{ "condition", in_turn, THREADS }, { "locks", other_locks, THREADS },
	{ "sleep", sleeping, THREADS },    { "spin", spinning, THREADS },
	{ "pipe", piped, 2 },              { "nest", nesting, 1 },
	{ "fork", forking, THREADS },      { "cancel", cancelled, THREADS },
	{ "alone", plainly, 0 },
};

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	if (argc != 3)
		return 2;
	pool = (volatile uint64_t *)map_pool(argv[2], 4096);
	pthread_spin_init(&spin, 0);
	pthread_barrier_init(&barrier, NULL, THREADS);
	sem_init(&semaphore, 0, strcmp(argv[1], "cancel") != 0);
	if (pipe(ends) != 0)
		return 3;
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
		if (strcmp(argv[1], scenarios[i].name) != 0)
			continue;
		store(0, 0);
		for (int t = 0; t < scenarios[i].threads; t++)
			pthread_create(&threads[t], NULL, scenarios[i].routine, (void *)(uintptr_t)(t + 1));
		if (scenarios[i].routine == cancelled) {
			pthread_cancel(threads[0]);
			pthread_cancel(threads[1]);
		}
		for (int t = 0; t < scenarios[i].threads; t++) {
			void *result;
			if (pthread_join(threads[t], &result) != 0)
				return 4;
			if (result != NULL && result != PTHREAD_CANCELED)
				return 5;
		}
		store(0, 1);
		return 0;
	}
	return 2;
}
