// Puts its input into its pool: takes stdin POOL | takes file POOL PATH | takes arguments POOL WORD...
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEN = 8192, HALF = LEN / 2 };

int main(int argc, char **argv)
{
    char input[HALF - 1] = "";
    size_t len = 0;
    if (argc < 3)
        return 2;
    if (strcmp(argv[1], "arguments") == 0) {
        for (int at = 3; at < argc; at++)
            len += sprintf(input + len, "%s|", argv[at]);
    } else {
        int fd = argc > 3 ? open(argv[3], O_RDONLY) : 0;
        ssize_t count = read(fd, input, sizeof input);
        if (count < 0)
            return 3;
        len = count;
    }
    int fd = open(argv[2], O_RDWR | O_CREAT, 0600);
    struct stat status;
    fstat(fd, &status);
    int is_new = status.st_size == 0;
    if (is_new && ftruncate(fd, LEN) != 0)
        return 4;
    char *pool = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    printf("%s found '%s' at %s\n", is_new ? "new:" : "old:", pool, argv[2]);
    memcpy(pool, input, len);
    msync(pool, LEN, MS_SYNC);
    return 0;
}
