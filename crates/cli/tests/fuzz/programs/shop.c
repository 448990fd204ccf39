// A store that is small enough to be fuzzed for a second: one letter on standard input is one command.
//
//   a..h  counts, each letter on a line of its own
//   o, p  an order, and its payment: the flag of a payment is durable before what was paid for (planted)
//   KILL  crashes
//   HANG  hangs
//
// Opening a pool checks it, which is all its recovery.

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define LEN 8192
#define LINE 64
#define MAGIC 0x73686f70
#define WORD(a, b, c, d) ((uint32_t)(a) << 24 | (b) << 16 | (c) << 8 | (d))

struct word {
    volatile uint64_t value;
    char rest[LINE - sizeof(uint64_t)];
};

struct shop {
    struct word magic;
    struct word counts[8];
    struct word paid;
    struct word order;
};

static void persist(struct word *word, uint64_t value)
{
    word->value = value;
    __builtin_ia32_clflush((void *)&word->value);
    __builtin_ia32_sfence();
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    int file = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, LEN) != 0)
        return 2;
    struct shop *shop = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shop == MAP_FAILED)
        return 2;
    if (shop->magic.value != MAGIC) {
        persist(&shop->magic, MAGIC);
    } else if (shop->paid.value != shop->order.value && shop->paid.value != 0) {
        fprintf(stderr, "paid for nothing\n");
        return 1;
    }
    uint32_t last = 0;
    int ordered = 0;
    int letter;
    while ((letter = getchar()) != EOF) {
        if (letter >= 'a' && letter <= 'h')
            persist(&shop->counts[letter - 'a'], shop->counts[letter - 'a'].value + 1);
        if (letter == 'o')
            ordered = 1;
        if (letter == 'p' && ordered) {
            persist(&shop->paid, 1);
            persist(&shop->order, 1);
        }
        last = last << 8 | letter;
        if (last == WORD('K', 'I', 'L', 'L'))
            abort();
        if (last == WORD('H', 'A', 'N', 'G'))
            for (;;)
                pause();
    }
    return 0;
}
