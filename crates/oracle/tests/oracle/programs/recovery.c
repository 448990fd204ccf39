// A recovery that executes its arguments, one after another.

#define _GNU_SOURCE
#include "expire.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((weak)) int choose(int line, int classes);
__attribute__((weak)) void refuse(const char *why);
__attribute__((weak)) void refuse_forked(const char *why);
__attribute__((weak)) void warn(const char *what);

static int pool = -1;

static int chosen(int line, int classes) { return choose ? choose(line, classes) : 0; }

static void *idle(void *nothing) {
    pause();
    return nothing;
}

int main(int count, char **words) {
    int last = 0;
    for (int i = 1; i < count; i++) {
        char *word = words[i];
        char *argument = strchr(word, '=');
        if (argument) *argument++ = 0;
        if (strcmp(word, "open") == 0) {
            pool = open(argument, O_RDWR);
            if (pool < 0) return 90;
        } else if (strcmp(word, "say") == 0) {
            dprintf(1, "%s", argument);
        } else if (strcmp(word, "print") == 0) {
            // Stays in the buffer of the C library.
            printf("%s", argument);
        } else if (strcmp(word, "cat") == 0) {
            char bytes[64] = {0};
            ssize_t len = pread(pool, bytes, sizeof bytes, 0);
            dprintf(1, "%.*s", (int)len, bytes);
        } else if (strcmp(word, "input") == 0) {
            char byte = '-';
            if (read(0, &byte, 1) < 0) return 91;
            dprintf(1, "<%c>", byte);
        } else if (strcmp(word, "flood") == 0) {
            char *bytes = malloc(atoi(argument));
            memset(bytes, 'x', atoi(argument));
            for (ssize_t at = 0, len = atoi(argument); at < len;) at += write(1, bytes + at, len - at);
            dprintf(1, "\n");
        } else if (strcmp(word, "choose") == 0) {
            int line = 0, classes = 0;
            if (sscanf(argument, "%d/%d", &line, &classes) != 2) return 92;
            last = chosen(line, classes);
            dprintf(1, "[%d:%d]", line, last);
        } else if (strcmp(word, "if") == 0) {
            // Skips the next word unless this was observed.
            if (last != atoi(argument)) i++;
        } else if (strcmp(word, "when") == 0) {
            // Skips the next word unless the pool begins with this.
            char bytes[64] = {0};
            if (pread(pool, bytes, strlen(argument), 0) < 0) return 96;
            if (strcmp(bytes, argument) != 0) i++;
        } else if (strcmp(word, "write") == 0) {
            if (pwrite(pool, argument, strlen(argument), 0) < 0) return 93;
        } else if (strcmp(word, "make") == 0) {
            int made = open(argument, O_CREAT | O_WRONLY | O_EXCL, 0600);
            if (made < 0) return 94;
            dprintf(made, "made");
            close(made);
        } else if (strcmp(word, "log") == 0) {
            if (open(argument, O_CREAT | O_WRONLY | O_TRUNC, 0600) < 0) return 95;
        } else if (strcmp(word, "daemon") == 0) {
            if (fork() == 0) {
                setsid();
                if (fork() == 0) pause();
                pause();
            }
        } else if (strcmp(word, "thread") == 0) {
            pthread_t thread;
            pthread_create(&thread, NULL, idle, NULL);
        } else if (strcmp(word, "hang") == 0) {
            expire();
            for (volatile int spin = 1; spin;) {}
        } else if (strcmp(word, "crash") == 0) {
            raise(atoi(argument));
        } else if (strcmp(word, "kill-group") == 0) {
            kill(0, SIGKILL);
        } else if (strcmp(word, "kill-parent") == 0) {
            kill(getppid(), SIGKILL);
        } else if (strcmp(word, "stop-parent") == 0) {
            kill(getppid(), SIGSTOP);
        } else if (strcmp(word, "kill-everyone") == 0) {
            kill(-1, SIGKILL);
        } else if (strcmp(word, "limit-parent") == 0) {
            struct rlimit none = {0, 0};
            prlimit(getppid(), RLIMIT_NOFILE, &none, NULL);
        } else if (strcmp(word, "ask-parent") == 0) {
            struct rlimit limit;
            prlimit(getppid(), RLIMIT_NOFILE, NULL, &limit);
            kill(getppid(), 0);
            kill(-1, 0);
        } else if (strcmp(word, "kill-parent-unseen") == 0) {
            int parent = syscall(SYS_pidfd_open, getppid(), 0);
            if (syscall(SYS_pidfd_send_signal, parent, SIGKILL, NULL, 0) != 0) return 97;
            pause();
        } else if (strcmp(word, "connect") == 0) {
            // An address that is reserved for documentation.
            struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(9)};
            address.sin_addr.s_addr = htonl(0xc6336401);
            int outside = socket(AF_INET, SOCK_STREAM, 0);
            if (connect(outside, (void *)&address, sizeof address) == 0 || errno != ENETUNREACH) return 89;
        } else if (strcmp(word, "unmount") == 0) {
            for (int mount = 0; mount < 2; mount++)
                if (umount2(mount ? "/" : "/dev/shm", MNT_DETACH) == 0) return 98;
        } else if (strcmp(word, "refuse") == 0) {
            if (refuse) refuse(argument);
        } else if (strcmp(word, "refuse-forked") == 0) {
            if (refuse_forked) refuse_forked(argument);
        } else if (strcmp(word, "warn") == 0) {
            if (warn) warn(argument);
        } else if (strcmp(word, "pid") == 0) {
            dprintf(1, "%d", getpid());
        } else if (strcmp(word, "exit") == 0) {
            fflush(NULL);
            return atoi(argument);
        } else {
            return 99;
        }
    }
    return 0;
}
