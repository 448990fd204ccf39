/* Crashes or hangs in a function whose name a test searches for. */
#include "expire.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile int *volatile nothing;
static volatile unsigned long turns;

__attribute__((noinline)) static void read_root(void) { turns += *nothing; }

__attribute__((noinline)) static void spin_forever(void) {
    expire();
    for (;;)
        turns++;
}

__attribute__((noinline)) static void wait_forever(void) {
    expire();
    for (;;)
        pause();
}

__attribute__((noinline)) static void give_up(void) { abort(); }

__attribute__((noinline)) static void call_nowhere(void) {
    void (*volatile nowhere)(void) = 0;
    nowhere();
    turns++;
}

/* Returns when a process, or its first thread, is in this state, in which it waits. */
static void until_waits(int process, char waits) {
    char path[32], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    while (state != waits) {
        sched_yield();
        FILE *stat = fopen(path, "r");
        if (!stat || fscanf(stat, "%*d %*s %c", &state) != 1) abort();
        fclose(stat);
    }
}

static void *worker(void *argument) {
    (void)argument;
    until_waits(getpid(), 'S');
    spin_forever();
    return 0;
}

static void *crashing_worker(void *argument) {
    (void)argument;
    read_root();
    turns++;
    return 0;
}

static void handled(int signal) { (void)signal; }

__attribute__((noinline)) static void recover(const char *how) {
    pthread_t thread;
    if (!strcmp(how, "crash"))
        read_root();
    else if (!strcmp(how, "abort"))
        give_up();
    else if (!strcmp(how, "nowhere"))
        call_nowhere();
    else if (!strcmp(how, "spin"))
        spin_forever();
    else if (!strcmp(how, "wait"))
        wait_forever();
    else if (!strcmp(how, "wait-behind-shell")) {
        until_waits(getppid(), 'S');
        wait_forever();
    } else if (!strcmp(how, "vfork")) {
        if (vfork() == 0) {
            until_waits(getppid(), 'D');
            wait_forever();
        }
    } else if (!strcmp(how, "thread")) {
        pthread_create(&thread, 0, worker, 0);
        pthread_join(thread, 0);
    } else if (!strcmp(how, "crash-thread")) {
        signal(SIGUSR1, handled);
        raise(SIGUSR1);
        pthread_create(&thread, 0, crashing_worker, 0);
        pthread_join(thread, 0);
    }
    turns++;
}

int main(int argc, char **argv) {
    recover(argc > 1 ? argv[1] : "");
    return 0;
}
