/* Threads and a child allocate and free at the same time; no memory is given to two of them. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pm.h"

#define THREADS 4
#define ROUNDS 300
#define HELD 16

static int fails(void *who)
{
	unsigned seed = 17 * (unsigned)(uintptr_t)who + 1;
	uint64_t *held[HELD] = {0};
	size_t lengths[HELD] = {0};
	for (int round = 0; round < ROUNDS; round++) {
		unsigned place = rand_r(&seed) % HELD;
		for (size_t i = 0; held[place] && i < lengths[place]; i++)
			if (held[place][i] != (uintptr_t)who * 1000 + place)
				return 1;
		free(held[place]);
		lengths[place] = 1 + rand_r(&seed) % 40;
		held[place] = malloc(lengths[place] * 8);
		for (size_t i = 0; i < lengths[place]; i++)
			held[place][i] = (uintptr_t)who * 1000 + place;
	}
	return 0;
}

static void *work(void *who)
{
	return (void *)(uintptr_t)fails(who);
}

int main(void)
{
	char *before = malloc(64);
	strcpy(before, "before");
	pthread_t threads[THREADS];
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, (void *)(i + 1));
	pid_t child = fork();
	if (child == 0) {
		free(before);
		char *mine = malloc(64);
		strcpy(mine, "child");
		_exit(fails((void *)100) || strcmp(mine, "child"));
	}
	int failed = 0, status;
	for (int i = 0; i < THREADS; i++) {
		void *result;
		pthread_join(threads[i], &result);
		failed |= result != NULL;
	}
	waitpid(child, &status, 0);
	failed |= status != 0;
	/* The child has freed it, and must not have been given it again. */
	failed |= strcmp(before, "before") != 0;
	return failed;
}
