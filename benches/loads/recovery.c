// A recovery that reads its pool for a long time: `recovery MODE POOL NANOSECONDS`. Prints how long that took.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone))

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

// The whole pool.
NOINLINE static uint64_t scan(volatile uint64_t *words, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum = sum * 31 + words[i];
    return sum;
}

// One line of a page, repeatedly.
NOINLINE static uint64_t load(volatile uint64_t *words, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += words[i & 7];
    return sum;
}

NOINLINE static uint64_t store(volatile uint64_t *words, size_t count) {
    for (size_t i = 0; i < count; i++)
        words[i & 7] = i;
    return words[0];
}

NOINLINE static uint64_t modify(volatile uint64_t *words, size_t count) {
    for (size_t i = 0; i < count; i++)
        words[i & 7] += i;
    return words[0];
}

NOINLINE static uint64_t copy(unsigned char *page, size_t count) {
    static unsigned char buffer[4096];
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        memcpy(buffer, page, 512 + i % 512);
        sum += buffer[i % 512];
    }
    return sum;
}

int main(int count, char **arguments) {
    struct stat status;
    int fd = count == 4 ? open(arguments[2], O_RDWR) : -1;
    if (fd < 0 || fstat(fd, &status) != 0)
        return 2;
    size_t len = (size_t)status.st_size;
    unsigned char *pool = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pool == MAP_FAILED)
        return 2;
    // The cost of the first touch of a page in the kernel must not be measured.
    volatile unsigned char touched = pool[len - 1];
    (void)touched;
    const char *mode = arguments[1];
    double start = now();
    uint64_t result;
    if (strcmp(mode, "scan") == 0)
        result = scan((void *)pool, len / 8);
    else if (strcmp(mode, "load") == 0)
        result = load((void *)(pool + 4096), 1000000);
    else if (strcmp(mode, "store") == 0)
        result = store((void *)(pool + 4096), 1000000);
    else if (strcmp(mode, "modify") == 0)
        result = modify((void *)(pool + 4096), 1000000);
    else
        result = copy(pool + 4096, 10000);
    double end = now();
    FILE *file = fopen(arguments[3], "w");
    if (file == NULL || fprintf(file, "%.0f %lx\n", end - start, result) < 0)
        return 2;
    return fclose(file) != 0;
}
