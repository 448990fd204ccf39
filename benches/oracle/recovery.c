// An almost empty recovery: it opens the pool, maps it and reads a few words of it.

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count != 2) return 2;
    int file = open(words[1], O_RDWR);
    struct stat status;
    if (file < 0 || fstat(file, &status) != 0) return 3;
    volatile uint64_t *pool = mmap(NULL, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (pool == MAP_FAILED) return 4;
    uint64_t sum = 0;
    for (int line = 0; line < 8; line++) sum += pool[8 * line];
    // It also writes something, as recoveries do.
    pool[64 * 8] = sum;
    if (sum > 8) {
        printf("the sum is %lu\n", (unsigned long)sum);
        return 1;
    }
    return 0;
}
