// Directories that most programs do not expect: `tree WHAT DIRECTORY`. `tree recover DIRECTORY` reads all of it.
#define _GNU_SOURCE
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int put(const char *name, const char *text) {
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (file < 0)
        return 1;
    int failed = write(file, text, strlen(text)) < 0 || fsync(file);
    return close(file) || failed;
}

static int look(const char *path, const struct stat *found, int kind, struct FTW *where) {
    (void)where;
    char bytes[256];
    int file = kind == FTW_F && S_ISREG(found->st_mode) ? open(path, O_RDONLY) : -1;
    if (file >= 0) {
        if (read(file, bytes, sizeof bytes) < 0)
            return 1;
        close(file);
    }
    return 0;
}

// One directory in another, until their path is longer than any path may be.
static int deep(void) {
    char name[201] = {0};
    memset(name, 'd', 200);
    for (int depth = 0; depth < 40; depth++)
        if (mkdir(name, 0755) || chdir(name) || put("file", "at a depth"))
            return 1;
    return 0;
}

static int special(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    int failed = mkfifo("fifo", 0644) || bind(server, (struct sockaddr *)&address, sizeof address);
    failed |= symlink("loop", "loop") || symlink("..", "above") || symlink("/nowhere", "dangling");
    failed |= put("file", "content") || link("file", "other-name") || rename("fifo", "fifo-renamed");
    return failed | unlink("dangling");
}

static int names(void) {
    char longest[256] = {0};
    memset(longest, 'n', 255);
    const char *odd[] = {"a\nb", "\xff\xfe", "-rf", " ", "\\", "*", "a\tb", "\x1b[31m", "..a", longest};
    for (unsigned number = 0; number < sizeof odd / sizeof *odd; number++)
        if (put(odd[number], odd[number]))
            return 1;
    return rename("-rf", "a\r") || unlink(longest);
}

int main(int count, char **words) {
    if (count < 3)
        return 2;
    const char *what = words[1], *directory = words[2];
    if (!strcmp(what, "recover"))
        return nftw(directory, look, 16, FTW_PHYS) != 0;
    if (chdir(directory))
        return 2;
    if (!strcmp(what, "plain"))
        return put("new", "content") || rename("new", "current");
    if (!strcmp(what, "special"))
        return special();
    if (!strcmp(what, "names"))
        return names();
    if (!strcmp(what, "deep"))
        return deep();
    if (!strcmp(what, "denied"))
        return put("file", "content") || chmod("file", 0) || mkdir("closed", 0) || put("open", "content");
    if (!strcmp(what, "sparse")) {
        int file = open("sparse", O_RDWR | O_CREAT, 0644);
        return ftruncate(file, 1L << 40) || pwrite(file, "end", 3, (1L << 40) - 3) != 3 || fsync(file);
    }
    if (!strcmp(what, "many")) {
        char name[16];
        for (int number = 0; number < 500; number++) {
            snprintf(name, sizeof name, "%d", number);
            if (put(name, name) || (number % 2 && unlink(name)))
                return 1;
        }
        return 0;
    }
    if (!strcmp(what, "gone"))
        return put("file", "content") || unlink("file") || rmdir(directory);
    return 2;
}
