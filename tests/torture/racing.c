// Threads that store to the same words of a pool with relaxed atomics: `racing THREADS POOL`, or `racing recover POOL`.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WORDS 64
#define ROUNDS 500

static _Atomic unsigned long *words;

static void *race(void *argument) {
    unsigned long number = (unsigned long)argument;
    for (int round = 0; round < ROUNDS; round++) {
        unsigned long word = (round * 7 + number) % WORDS;
        atomic_store_explicit(&words[word], number * ROUNDS + round, memory_order_relaxed);
        // Stores of other sizes to the same words.
        atomic_store_explicit((_Atomic unsigned char *)&words[round % WORDS] + number % 8, round, memory_order_relaxed);
    }
    return NULL;
}

int main(int count, char **arguments) {
    if (count < 3)
        return 2;
    int file = open(arguments[2], O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, 4096))
        return 2;
    void *pool = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (pool == MAP_FAILED)
        return 2;
    words = pool;
    if (!strcmp(arguments[1], "recover"))
        return atomic_load(&words[0]) == ~0UL;
    int threads = atoi(arguments[1]);
    pthread_t all[64];
    for (long number = 0; number < threads && number < 64; number++)
        pthread_create(&all[number], NULL, race, (void *)number);
    for (long number = 0; number < threads && number < 64; number++)
        pthread_join(all[number], NULL);
    msync(pool, 4096, MS_SYNC);
    return 0;
}
