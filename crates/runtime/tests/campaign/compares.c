// Reads words and compares them in many ways; stores the recognised words in its pool.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

// The compiler must not know the compared values.
static const char *volatile words[] = { "alpha-word", "beta-word", "GAMMA-word", "delta-word",
    "epsilon\001word", "zeta-word", "eta-word", "theta-word" };

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, 4096) != 0)
        return 3;
    volatile char *pool = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char line[128];
    while (fgets(line, sizeof line, stdin)) {
        size_t len = strlen(line);
        if (len && line[len - 1] == '\n')
            line[--len] = 0;
        if (strcmp(line, words[0]) == 0)
            pool[0]++;
        if (strncmp(line, words[1], 9) == 0)
            pool[1]++;
        if (strcasecmp(line, words[2]) == 0)
            pool[2]++;
        if (strncasecmp(line, words[3], 10) == 0)
            pool[3]++;
        if (len >= 12 && memcmp(line, words[4], 12) == 0)
            pool[4]++;
        if (strstr(line, words[5]))
            pool[5]++;
        if (memmem(line, len, words[6], 8))
            pool[6]++;
        if (len >= 10 && bcmp(line, words[7], 10) == 0)
            pool[7]++;
    }
    return 0;
}
