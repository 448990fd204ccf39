// A store that is small enough to be fuzzed in a second: each letter is a command. They come on standard input, or
//
//   shop POOL file PATH      from a file
//   shop POOL args WORD...   as arguments
//   shop POOL serve          from clients that connect
//
// The commands:
//
//   a..h  increments a counter; each letter has its own line
//   o, p  an order, and its payment: the payment's flag is durable before the paid order (planted)
//   SALE  a sale, with separate instructions: mutation cannot guess the word
//   GIFT  a gift, in the same way
//   KILL  crashes
//   HANG  hangs
//
// A pool contains its creation time. Opening a pool checks it; that is the whole recovery.

#include <fcntl.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
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
    struct word made;
    struct word sale;
    struct word gift;
};

static struct shop *shop;

static void persist(struct word *word, uint64_t value)
{
    word->value = value;
    __builtin_ia32_clflush((void *)&word->value);
    __builtin_ia32_sfence();
}

static void command(int letter)
{
    static uint32_t last;
    static int ordered;
    if (letter >= 'a' && letter <= 'h')
        persist(&shop->counts[letter - 'a'], shop->counts[letter - 'a'].value + 1);
    if (letter == 'o')
        ordered = 1;
    if (letter == 'p' && ordered) {
        persist(&shop->paid, 1);
        persist(&shop->order, 1);
    }
    last = last << 8 | letter;
    if (last == WORD('S', 'A', 'L', 'E')) {
        shop->sale.value = 1;
        __builtin_ia32_clflush((void *)&shop->sale.value);
        __builtin_ia32_sfence();
    }
    if (last == WORD('G', 'I', 'F', 'T')) {
        shop->gift.value = 1;
        __builtin_ia32_clflush((void *)&shop->gift.value);
        __builtin_ia32_sfence();
    }
    if (last == WORD('K', 'I', 'L', 'L'))
        abort();
    if (last == WORD('H', 'A', 'N', 'G'))
        for (;;)
            pause();
}

static int serve(void)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(7777) };
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 1) != 0)
        return 3;
    for (;;) {
        int client = accept(listener, NULL, NULL);
        unsigned char letter;
        while (read(client, &letter, 1) == 1)
            command(letter);
        close(client);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    int file = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, LEN) != 0)
        return 2;
    shop = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shop == MAP_FAILED)
        return 2;
    if (shop->magic.value != MAGIC) {
        persist(&shop->made, time(NULL));
        persist(&shop->magic, MAGIC);
    } else if (shop->paid.value != shop->order.value && shop->paid.value != 0) {
        fprintf(stderr, "paid for nothing\n");
        return 1;
    }
    const char *way = argc > 2 ? argv[2] : "stdin";
    if (strcmp(way, "serve") == 0)
        return serve();
    for (int word = 3; word < argc && strcmp(way, "args") == 0; word++)
        for (const char *letter = argv[word]; *letter != 0; letter++)
            command((unsigned char)*letter);
    if (strcmp(way, "args") == 0)
        return 0;
    FILE *input = strcmp(way, "file") == 0 && argc > 3 ? fopen(argv[3], "r") : stdin;
    int letter;
    while (input != NULL && (letter = getc(input)) != EOF)
        command(letter);
    return input == NULL;
}
