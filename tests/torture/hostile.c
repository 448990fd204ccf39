// A recovery that does what no recovery should do: `hostile WHAT POOL`.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count < 3)
        return 2;
    const char *what = words[1], *pool = words[2];
    int file = open(pool, O_RDWR);
    char byte = 0;
    if (file >= 0 && read(file, &byte, 1) < 0)
        return 3;
    if (!strcmp(what, "kill-parent"))
        kill(getppid(), SIGKILL);
    else if (!strcmp(what, "stop-parent"))
        kill(getppid(), SIGSTOP);
    else if (!strcmp(what, "kill-all"))
        kill(-1, SIGKILL);
    else if (!strcmp(what, "stop-self"))
        raise(SIGSTOP);
    else if (!strcmp(what, "daemon")) {
        if (fork() == 0) {
            setsid();
            if (fork() == 0)
                for (;;)
                    pause();
            _exit(0);
        }
    } else if (!strcmp(what, "forks")) {
        for (int number = 0; number < 100; number++)
            if (fork() == 0)
                for (;;)
                    pause();
    } else if (!strcmp(what, "memory")) {
        // Reserved, not used: the machine has other work.
        while (mmap(NULL, 1L << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED)
            ;
        abort();
    } else if (!strcmp(what, "output")) {
        char line[4096];
        memset(line, 'x', sizeof line);
        for (int number = 0; number < 4096; number++)
            if (write(number % 2 + 1, line, sizeof line) < 0)
                break;
    } else if (!strcmp(what, "file")) {
        char name[] = "/tmp/hostile-XXXXXX";
        int other = mkstemp(name);
        if (other >= 0 && ftruncate(other, 1L << 40))
            unlink(name);
        unlink(name);
    } else if (!strcmp(what, "truncate"))
        return ftruncate(file, 1);
    else if (!strcmp(what, "unlink"))
        return unlink(pool);
    else if (!strcmp(what, "link")) {
        const char *home = getenv("HOME");
        char target[4096];
        snprintf(target, sizeof target, "%s/precious", home ? home : "");
        unlink(pool);
        return symlink(target, pool);
    } else if (!strcmp(what, "mode"))
        return chmod(pool, 0);
    else if (!strcmp(what, "close")) {
        for (int number = 0; number < 1024; number++)
            close(number);
    } else if (!strcmp(what, "sleep"))
        for (;;)
            pause();
    else if (!strcmp(what, "unmount")) {
        umount2("/dev/shm", MNT_DETACH);
        umount2("/", MNT_DETACH);
    }
    return 0;
}
