// Eight records of many lines. The count that publishes a record is durable before the record is: nothing orders them.
//
//   records POOL LINES          appends
//   records POOL LINES verify   recovers: every published record must be complete
#include <assert.h>
#include <libpmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORDS = 8, LINE_BYTES = 64, POOL_BYTES = 1 << 20 };

struct line {
    uint64_t words[LINE_BYTES / sizeof(uint64_t)];
};

struct pool {
    uint64_t count;
    uint64_t unused[7];
    struct line lines[];
};

int main(int argc, char **argv)
{
    size_t len = 0;
    int is_pmem = 0;
    struct pool *pool = pmem_map_file(argv[1], POOL_BYTES, PMEM_FILE_CREATE, 0600, &len, &is_pmem);
    if (pool == NULL) {
        perror(argv[1]);
        return 1;
    }
    size_t lines = strtoul(argv[2], NULL, 10);
    if (argc > 3) {
        for (size_t line = 0; line < pool->count * lines; line++)
            for (size_t word = 0; word < 8; word++)
                assert(pool->lines[line].words[word] == line + 1);
        return 0;
    }
    for (size_t record = pool->count; record < RECORDS; record++) {
        struct line *first = &pool->lines[record * lines];
        for (size_t line = 0; line < lines; line++)
            for (size_t word = 0; word < 8; word++)
                first[line].words[word] = record * lines + line + 1;
        pool->count = record + 1;
        pmem_persist(&pool->count, sizeof pool->count);
        pmem_persist(first, lines * sizeof *first);
    }
    return 0;
}
