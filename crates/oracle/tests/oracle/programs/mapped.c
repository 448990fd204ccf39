// A recovery that maps its pool and executes its arguments, one after another.

#define _GNU_SOURCE
#include "expire.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "powerfail.h"

static volatile uint8_t *pool;

__attribute__((noinline)) static unsigned load(long offset) { return pool[offset]; }

static pthread_barrier_t together;

static void *load_together(void *unused) {
    (void)unused;
    pthread_barrier_wait(&together);
    return (void *)(uintptr_t)load(0);
}

// Whether all of these threads load the same value at the same time.
static int agree(long count) {
    pthread_t threads[count];
    pthread_barrier_init(&together, NULL, count);
    for (long i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, load_together, NULL) != 0) return 0;
    int agree = 1;
    for (long i = 0; i < count; i++) {
        void *loaded;
        pthread_join(threads[i], &loaded);
        agree &= (uintptr_t)loaded == load(0);
    }
    return agree;
}

int main(int count, char **words) {
    unsigned last = 0;
    for (int i = 1; i < count; i++) {
        char *word = words[i];
        char *argument = strchr(word, '=');
        if (argument) *argument++ = 0;
        long number = argument ? atol(argument) : 0;
        if (strcmp(word, "map") == 0) {
            int file = open(argument, O_RDWR);
            struct stat status;
            if (file < 0 || fstat(file, &status) != 0) return 90;
            pool = mmap(NULL, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
            if (pool == MAP_FAILED) return 91;
            close(file);
        } else if (strcmp(word, "load") == 0) {
            last = load(number);
            printf("[%ld:%u]", number, last);
        } else if (strcmp(word, "store") == 0) {
            pool[number] = atoi(strchr(argument, ':') + 1);
        } else if (strcmp(word, "if") == 0) {
            // Skips the next word unless this was loaded.
            if (last != number) i++;
        } else if (strcmp(word, "threads") == 0) {
            if (!agree(number)) return 95;
        } else if (strcmp(word, "say") == 0) {
            dprintf(2, "%s", argument);
        } else if (strcmp(word, "flood") == 0) {
            for (long line = 0; line < number / 100; line++) printf("%0100ld", line);
        } else if (strcmp(word, "make") == 0) {
            int made = open(argument, O_CREAT | O_WRONLY | O_EXCL, 0600);
            if (made < 0) return 94;
            dprintf(made, "made");
            close(made);
            unlink(argument);
        } else if (strcmp(word, "interest") == 0) {
            powerfail_interest_begin(number, POWERFAIL_AFTER);
            powerfail_interest_end(!number, POWERFAIL_AFTER);
        } else if (strcmp(word, "commit") == 0) {
            powerfail_commit_variable((void *)(pool + number), 8);
        } else if (strcmp(word, "daemon") == 0) {
            if (fork() == 0) pause();
        } else if (strcmp(word, "hang") == 0) {
            expire();
            for (;;) {}
        } else if (strcmp(word, "crash") == 0) {
            fflush(NULL);
            raise(number);
        } else if (strcmp(word, "exit") == 0) {
            return number;
        } else {
            return 99;
        }
    }
    return 0;
}
