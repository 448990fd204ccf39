// A recovery whose threads store to the same pages at the same time: `threads STORES POOL`. It prints a checksum of each page.
#define _GNU_SOURCE
#include <emmintrin.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096
#define LEN (4 * PAGE)

static unsigned char *pool;
static int rounds;

static void fill(void *to, int byte, size_t count) {
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(byte) : "memory");
}

static void copy(void *to, const void *from, size_t count) {
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
}

static void *run(void *number) {
    uintptr_t me = (uintptr_t)number;
    // Lines of both threads alternate in the first two pages, and each is written once.
    for (int i = 0; i < rounds; i++) {
        unsigned char *line = pool + (2 * i + me) * 64;
        uint64_t value = (uint64_t)i * 2654435761u + me;
        *(volatile uint64_t *)line = value;
        _mm_store_si128((__m128i *)(line + 16), _mm_set1_epi32((int)value));
        __atomic_fetch_add((uint64_t *)(line + 32), value, __ATOMIC_SEQ_CST);
        fill(line + 40, (int)value, 3);
        copy(line + 43, line, 3);
        *(volatile uint16_t *)(line + 48) += 7;
        // Something on the stack is popped to the pool.
        __asm__ volatile("leaq -128(%%rsp), %%rsp; pushq %1; popq (%0); leaq 128(%%rsp), %%rsp" : : "r"(line + 56), "r"(value) : "memory");
        // Counted by both, and in two pages.
        __atomic_fetch_add((uint64_t *)(pool + 2 * PAGE), 1, __ATOMIC_SEQ_CST);
        *(volatile uint32_t *)(pool + 3 * PAGE - 6 + 4 * me) = (uint32_t)value;
    }
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    rounds = atoi(arguments[1]);
    int fd = open(arguments[2], O_RDWR);
    pool = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pool == MAP_FAILED)
        return 3;
    pthread_t threads[2];
    for (uintptr_t i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, run, (void *)i);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int page = 0; page < 4; page++) {
        uint64_t sum = 0;
        for (int i = 0; i < PAGE; i++)
            sum = sum * 31 + pool[page * PAGE + i];
        printf("%lx\n", sum);
    }
    return 0;
}
