// A fake runtime: it speaks the protocol of powerfail_protocol::explore, and a program itself declares with
// `choose` where it loads from an open line.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LAZY = 1, FORK = 2 };
enum { NOT_EXPLORABLE = 0, NOT_FORKABLE = 1 };
enum { AT_SNAPSHOT = 1, NO_SNAPSHOT = 2, ENDED = 3, REFUSED = 4, WARNING = 5 };
enum { RUN = 1, STOP = 2, GO = 3 };

struct control {
    uint64_t magic;
    uint32_t version, flags, line_bytes, pool_count, line_count, page_count, prefix_len, waiting_max;
    uint32_t choice_count, active, waiting, attached;
    uint64_t log_len;
    uint32_t site_count;
    uint64_t traps, steps, forced;
    uint32_t root, begun;
    unsigned char mark[32];
    uint32_t watch_count, note_count, attention;
};

struct pool {
    uint64_t path_at, path_len;
};

struct choice {
    uint32_t line;
    uint16_t from, to, class_count, class;
    uint32_t content, left, log_events;
    uint64_t frames[12], observed[8];
    uint32_t notes, skipped;
};

struct open_page {
    uint32_t pool, open_lines;
    uint64_t offset, watched, read;
};

static char *file;
static int talk = -1, output = -1, at_snapshot;

static struct control *control(void) { return (struct control *)file; }

static void say(uint64_t kind, uint64_t first, uint64_t second, const char *text) {
    char message[512] = {0};
    memcpy(message, &kind, 8);
    memcpy(message + 8, &first, 8);
    memcpy(message + 16, &second, 8);
    snprintf(message + 32, sizeof message - 32, "%s", text);
    send(talk, message, sizeof message, MSG_NOSIGNAL);
}

static uint64_t order(void) {
    uint64_t word = STOP;
    return recv(talk, &word, 8, 0) == 8 ? word : STOP;
}

__attribute__((constructor)) static void begin(void) {
    const char *fd = getenv("POWERFAIL_EXPLORE_FD");
    if (!fd) return;
    file = mmap(NULL, 9L << 30, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, atoi(fd), 0);
    talk = atoi(getenv("POWERFAIL_EXPLORE_SOCKET"));
    output = atoi(getenv("POWERFAIL_EXPLORE_OUTPUT_FD"));
    if (!control()->root) control()->root = getpid();
    control()->begun = 1;
}

// Continues as an execution, once for each order.
static void snapshot(void) {
    if (at_snapshot++) return;
    const char *wrong = getenv("NO_SNAPSHOT");
    if (wrong) {
        say(NO_SNAPSHOT, 0, 0, wrong);
        return;
    }
    say(AT_SNAPSHOT, getpid(), 0, "");
    for (;;) {
        switch (order()) {
        case GO: control()->active = getpid(); return;
        case RUN: break;
        default: _exit(0);
        }
        pid_t child = fork();
        if (child == 0) {
            setsid();
            control()->active = getpid();
            return;
        }
        int status = 0;
        waitpid(child, &status, 0);
        say(ENDED, child, status, "");
    }
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int mode = flags & O_CREAT ? va_arg(rest, int) : 0;
    va_end(rest);
    const struct pool *pools = (struct pool *)(file + (64 << 10));
    for (uint32_t i = 0; file && i < control()->pool_count; i++)
        if (strcmp(path, file + pools[i].path_at) == 0) {
            snapshot();
            control()->begun = 1;
        }
    int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
    return real(path, flags, mode);
}

// A load from a line that can observe this many values: returns the one that it observes.
int choose(int line, int classes) {
    if (!file || !(control()->flags & LAZY)) return 0;
    struct control *c = control();
    struct open_page *pages = (struct open_page *)(file + (3L << 30));
    if (c->page_count) pages[0].read |= 1ul << line;
    c->traps++;
    uint32_t number = c->choice_count;
    uint32_t *prefix = (uint32_t *)(file + (4L << 30));
    struct choice *made = (struct choice *)(file + (4L << 30) + (64 << 20)) + number;
    struct choice choice = {.line = line, .class_count = classes, .frames = {(uintptr_t)__builtin_return_address(0)}};
    if (number < c->prefix_len) {
        choice.class = choice.content = prefix[number];
    } else if (c->flags & FORK) {
        while (choice.class + 1 < classes) {
            if (write(output, c->mark, sizeof c->mark) != sizeof c->mark) abort();
            c->waiting++;
            pid_t child = fork();
            if (child == 0) {
                if (!getenv("ONE_GROUP")) setsid();
                c->active = getpid();
                break;
            }
            int status = 0;
            waitpid(child, &status, 0);
            c->waiting--;
            say(ENDED, child, status, "");
            if (order() != RUN) _exit(0);
            c->active = getpid();
            choice.content = ++choice.class;
        }
    } else {
        choice.left = classes > 1;
    }
    *made = choice;
    c->choice_count = number + 1;
    return choice.class;
}

static void refuse_as(uint64_t kind, const char *why) {
    if (!file || !(control()->flags & LAZY)) return;
    say(REFUSED, getpid(), kind, why);
    _exit(125);
}

// Something that cannot be explored.
void refuse(const char *why) { refuse_as(NOT_EXPLORABLE, why); }

// Something that cannot be explored by forking.
void refuse_forked(const char *why) {
    if (file && control()->flags & FORK) refuse_as(NOT_FORKABLE, why);
}

void warn(const char *what) {
    if (file && control()->flags & LAZY) say(WARNING, 0, 0, what);
}

int is_lazy(void) { return file && control()->flags & LAZY; }
