/* Does what its pool says: nothing, hangs, or takes long. */
#include "expire.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long turns;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* The processor time so far. */
static double used(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

__attribute__((noinline)) static void spin(int expires) {
    for (;;) {
        turns++;
        if (expires && turns % 100000 == 0 && used() > 1) {
            expires = 0;
            expire();
        }
    }
}

__attribute__((noinline)) static void inner(unsigned long depth) {
    turns++;
    if (depth)
        inner(depth - 1);
    turns++;
}

__attribute__((noinline)) static void calls(int expires) {
    for (unsigned long depth = 0;; depth++) {
        inner(depth % 10);
        if (expires && turns % 1000 == 0 && used() > 1) {
            expires = 0;
            expire();
        }
    }
}

__attribute__((noinline)) static void slow(void) {
    while (used() < 0.3)
        turns++;
}

static void *locks(void *argument) {
    pthread_mutex_lock(&mutex);
    return argument;
}

int main(int argc, char **argv) {
    char text[64] = "";
    pthread_t thread;
    FILE *pool = argc > 1 ? fopen(argv[1], "r") : 0;
    if (!pool || !fgets(text, sizeof text, pool)) return 2;
    int expires = strstr(text, "expire") != 0;
    if (!strncmp(text, "spin", 4))
        spin(expires);
    else if (!strncmp(text, "calls", 5))
        calls(expires);
    else if (!strcmp(text, "slow"))
        slow();
    else if (!strncmp(text, "deadlock", 8)) {
        pthread_mutex_lock(&mutex);
        if (!strcmp(text, "deadlock"))
            locks(0);
        else if (!strcmp(text, "deadlock of threads")) {
            pthread_create(&thread, 0, locks, 0);
            pthread_join(thread, 0);
        } else {
            if (fork() == 0)
                locks(0);
            wait(0);
        }
    }
    return 0;
}
