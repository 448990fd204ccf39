// What programs that keep their data in ordinary files share.
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// The directory of the program.
static const char *files_dir;

static void check(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "%s: %s\n", what, errno ? strerror(errno) : "wrong");
        exit(1);
    }
}

static inline const char *in_dir(const char *name) {
    static char paths[4][4096];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", files_dir, name);
    return path;
}

static inline int open_file(const char *name, int flags) {
    int file = open(in_dir(name), flags | O_CLOEXEC, 0644);
    check(file >= 0, name);
    return file;
}

static inline void sync_dir(void) {
    int dir = open(files_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    check(dir >= 0 && fsync(dir) == 0, "fsync of the directory");
    close(dir);
}

// Creates a file as it should be done: it gets its name when all of it is durable.
static inline void create_synced(const char *name, const void *bytes, size_t len) {
    int file = open_file("being-created", O_CREAT | O_WRONLY);
    check(write(file, bytes, len) == (ssize_t)len && fsync(file) == 0, name);
    close(file);
    check(rename(in_dir("being-created"), in_dir(name)) == 0, "rename");
    sync_dir();
}

// Reads a file; -1 if there is none.
static inline ssize_t read_file(const char *name, char *bytes, size_t room) {
    int file = open(in_dir(name), O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return -1;
    }
    ssize_t len = read(file, bytes, room);
    close(file);
    return len;
}
