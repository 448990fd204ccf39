// Recoveries for the tests of explore mode: `recovery MODE POOL`. Each prints the values that it has read.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <immintrin.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "powerfail.h"

#define LEN 16384

static int fd;
static const char *path;

static unsigned char *map_as(int protection, int flags) {
    void *pool = mmap(NULL, LEN, protection, flags, fd, 0);
    if (pool == MAP_FAILED) {
        perror("mmap");
        exit(3);
    }
    return pool;
}

static unsigned char *map(void) {
    fd = open(path, O_RDWR);
    if (fd < 0) {
        perror("open");
        exit(3);
    }
    return map_as(PROT_READ | PROT_WRITE, MAP_SHARED);
}

#define LOAD(type, at) (*(volatile type *)(pool + (at)))

static void mixed(void) {
    unsigned char *pool = map();
    printf("%x %x ", LOAD(uint8_t, 0), LOAD(uint16_t, 1));
    printf("%x %lx\n", LOAD(uint32_t, 4), LOAD(uint64_t, 8));
}

__attribute__((target("avx2"))) static void vector(void) {
    unsigned char *pool = map();
    unsigned char bytes[32];
    _mm256_storeu_si256((void *)bytes, _mm256_loadu_si256((void *)(pool + 16)));
    for (int i = 0; i < 32; i++)
        printf("%x", bytes[i]);
    printf("\n");
}

__attribute__((target("avx2"))) static void masked(void) {
    unsigned char *pool = map();
    __m256i mask = _mm256_set_epi32(0, 0, 0, 0, 0, -1, 0, 0);
    uint32_t words[8];
    _mm256_storeu_si256((void *)words, _mm256_maskload_epi32((void *)pool, mask));
    printf("%x %x %x\n", words[0], words[1], words[2]);
}

__attribute__((target("avx2"))) static void gathered(void) {
    unsigned char *pool = map();
    __m256i index = _mm256_set_epi32(16, 0, 0, 0, 0, 0, 0, 1);
    __m256i mask = _mm256_set_epi32(-1, 0, 0, 0, 0, 0, 0, -1);
    uint32_t words[8];
    __m256i none = _mm256_setzero_si256();
    __m256i all = _mm256_mask_i32gather_epi32(none, (void *)pool, index, mask, 4);
    _mm256_storeu_si256((void *)words, all);
    printf("%x %x\n", words[0], words[7]);
}

static void repeated(void) {
    unsigned char *pool = map();
    unsigned char bytes[24];
    void *to = bytes, *from = pool + 52;
    size_t count = sizeof bytes;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
    for (size_t i = 0; i < sizeof bytes; i++)
        printf("%x", bytes[i]);
    printf("\n");
}

static void crossing(void) {
    unsigned char *pool = map();
    printf("%lx %lx\n", LOAD(uint64_t, 60), LOAD(uint64_t, 4092));
}

static void overwriting(void) {
    unsigned char *pool = map();
    LOAD(uint64_t, 0) = 0x77;
    // The overwritten content cannot be observed any more; the bytes beside it can.
    printf("%lx %x\n", LOAD(uint64_t, 0), LOAD(uint8_t, 8));
}

static void locked(void) {
    unsigned char *pool = map();
    uint64_t before = __atomic_fetch_add((uint64_t *)pool, 0x10, __ATOMIC_SEQ_CST);
    printf("%lx %lx\n", before, LOAD(uint64_t, 0));
}

static void stored(void) {
    unsigned char *pool = map();
    // Closes a line by its reads, and continues to use the page.
    LOAD(uint64_t, 128) = LOAD(uint8_t, 0) + 1;
    memset(pool + 192, LOAD(uint8_t, 0), 16);
    printf("%lx %x\n", LOAD(uint64_t, 128), LOAD(uint8_t, 207));
}

static void written(void) {
    unsigned char *pool = map();
    struct iovec parts[3] = {{pool, 1}, {pool + 1, 1}, {(void *)" there\n", 7}};
    if (writev(1, parts, 3) != 9)
        exit(4);
}

static void printed(void) {
    unsigned char *pool = map();
    // Too much for the buffer of the stream: the C library calls the kernel internally, not by a symbol.
    fwrite(pool, 1, 8192, stdout);
}

static void from_file(void) {
    fd = open(path, O_RDWR);
    unsigned char bytes[24];
    if (pread(fd, bytes, 8, 0) != 8)
        exit(4);
    unsigned char *pool = map_as(PROT_READ | PROT_WRITE, MAP_SHARED);
    uint8_t seen = LOAD(uint8_t, 0);
    LOAD(uint8_t, 4100) = 0x55;
    LOAD(uint8_t, 2) = 0x66;
    lseek(fd, 4096, SEEK_SET);
    if (read(fd, bytes + 8, 8) != 8 || pread(fd, bytes + 16, 8, 0) != 8)
        exit(4);
    printf("%x %x %x %x\n", bytes[0], seen, bytes[12], bytes[18]);
}

static void to_file(void) {
    unsigned char *pool = map();
    uint64_t value = 0x1234;
    if (pwrite(fd, &value, 8, 0) != 8 || pwrite(fd, &value, 8, 8192) != 8)
        exit(4);
    printf("%lx %lx %x\n", LOAD(uint64_t, 0), LOAD(uint64_t, 8192), LOAD(uint8_t, 8));
}

static void into_pool(void) {
    unsigned char *pool = map();
    int ends[2];
    if (pipe(ends) || write(ends[1], "abcdefgh", 8) != 8 || read(ends[0], pool, 8) != 8)
        exit(4);
    printf("%.8s %x\n", (char *)pool, LOAD(uint8_t, 8));
}

static void twice(void) {
    unsigned char *pool = map();
    unsigned char *other = map_as(PROT_READ | PROT_WRITE, MAP_SHARED);
    LOAD(uint8_t, 3) = 0x31;
    other[8200] = 0x32;
    printf("%x %x %x ", *(volatile uint8_t *)(other + 3), LOAD(uint8_t, 8200), LOAD(uint8_t, 0));
    munmap(pool, LEN);
    printf("%x %x\n", *(volatile uint8_t *)(other + 3), *(volatile uint8_t *)(other + 8200));
}

static void again(void) {
    unsigned char *pool = map();
    LOAD(uint8_t, 3) = 0x41;
    LOAD(uint8_t, 8200) = 0x42;
    munmap(pool, LEN);
    close(fd);
    pool = map();
    printf("%x %x %x\n", LOAD(uint8_t, 3), LOAD(uint8_t, 8200), LOAD(uint8_t, 0));
}

static void privately(void) {
    unsigned char *pool = map();
    unsigned char *own = map_as(PROT_READ | PROT_WRITE, MAP_PRIVATE);
    uint8_t first = *(volatile uint8_t *)own;
    own[0] = 0x51;
    printf("%x %x %x\n", first, *(volatile uint8_t *)own, LOAD(uint8_t, 0));
}

static void into_private(void) {
    map();
    unsigned char *pool = map_as(PROT_READ | PROT_WRITE, MAP_PRIVATE);
    int ends[2];
    if (pipe(ends) || write(ends[1], "abcdefgh", 8) != 8 || read(ends[0], pool, 8) != 8)
        exit(4);
    printf("%.8s %x\n", (char *)pool, LOAD(uint8_t, 8));
}

static void moved(void) {
    unsigned char *pool = map();
    munmap(pool, LEN);
    pool = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    LOAD(uint8_t, 3) = 0x61;
    pool = mremap(pool, 4096, LEN, MREMAP_MAYMOVE);
    mprotect(pool, LEN, PROT_READ);
    printf("%x %x %x\n", LOAD(uint8_t, 3), LOAD(uint8_t, 0), LOAD(uint8_t, 4096));
}

static void crashing(void) {
    unsigned char *pool = map();
    if (LOAD(uint8_t, 0) == 1)
        *(volatile int *)8 = 1;
    printf("fine\n");
}

static void hanging(void) {
    unsigned char *pool = map();
    if (LOAD(uint8_t, 0) == 1) {
        printf("hangs\n");
        fflush(stdout);
        for (;;)
            pause();
    }
    printf("fine\n");
}

static sigjmp_buf place;
static void on_fault(int signal) {
    (void)signal;
    siglongjmp(place, 1);
}

static void handled(void) {
    struct sigaction action = {.sa_handler = on_fault};
    sigaction(SIGSEGV, &action, NULL);
    unsigned char *pool = map();
    if (!sigsetjmp(place, 1))
        *(volatile int *)8 = LOAD(uint8_t, 0);
    printf("caught %x\n", LOAD(uint8_t, 0));
}

static void *reader(void *pool) {
    return (void *)(uintptr_t)*(volatile uint8_t *)pool;
}

static void threads(void) {
    unsigned char *pool = map();
    pthread_t thread;
    void *seen;
    pthread_create(&thread, NULL, reader, pool);
    pthread_join(thread, &seen);
    printf("%lx %x\n", (uintptr_t)seen, LOAD(uint8_t, 1));
}

static void forking(void) {
    map();
    if (fork() == 0)
        _exit(0);
    wait(NULL);
}

static void becoming(void) {
    unsigned char *pool = map();
    LOAD(uint8_t, 0) = 5;
    execl("/proc/self/exe", "recovery", "mixed", path, NULL);
}

static void delegating(void) {
    unsigned char *pool = map();
    LOAD(uint8_t, 0) = 5;
    munmap(pool, LEN);
    close(fd);
    char command[8192];
    snprintf(command, sizeof command, "head -c 1 %s | od -An -tu1", path);
    if (system(command))
        exit(4);
}

static void shortening(void) {
    map();
    if (ftruncate(fd, LEN / 2))
        exit(4);
}

static void locking(void) {
    unsigned char *pool = map();
    int held = flock(fd, LOCK_EX | LOCK_NB);
    uint8_t seen = LOAD(uint8_t, 0);
    close(fd);
    fd = open(path, O_RDWR);
    printf("%d %d %x\n", held, flock(fd, LOCK_EX | LOCK_NB), seen);
}

static void with_file(void) {
    // A file that is read before and after a choice: branches must not share its position.
    FILE *file = fopen("/proc/self/exe", "r");
    unsigned char *pool = map();
    int copy = open("/usr/include/stdio.h", O_RDONLY);
    char bytes[4], more[4];
    if (read(copy, bytes, 4) != 4)
        exit(4);
    uint8_t seen = LOAD(uint8_t, 0);
    if (read(copy, more, 4) != 4)
        exit(4);
    long at = lseek(copy, 0, SEEK_CUR);
    printf("%x %ld\n", seen, at);
    fclose(file);
}

static void logged(void) {
    unsigned char *pool = map();
    LOAD(uint64_t, 8192) = LOAD(uint8_t, 0);
    _mm_clflush(pool + 8192);
    _mm_sfence();
    _mm_stream_si32((int *)(pool + 8256), 7);
    uint64_t other = 0;
    __atomic_fetch_add(&other, 1, __ATOMIC_SEQ_CST);
    __atomic_fetch_add((uint64_t *)(pool + 8320), 5, __ATOMIC_SEQ_CST);
    msync(pool, 4096, MS_SYNC);
    printf("%lx\n", LOAD(uint64_t, 8192));
}

static void owning(void) {
    unsigned char *pool = map();
    pthread_mutex_t *mutex = (pthread_mutex_t *)(pool + 8192);
    pthread_mutex_lock(mutex);
    printf("%d\n", mutex->__data.__owner == getpid());
    pthread_mutex_unlock(mutex);
}

static void flushed(void) {
    unsigned char *pool = map();
    LOAD(uint64_t, 8192) = 1;
    _mm_clflush(pool + 8192);
    uint8_t seen = LOAD(uint8_t, 0);
    _mm_sfence();
    printf("%x\n", seen);
}

static void exchanged(void) {
    unsigned char *pool = map();
    // Nothing has read or overwritten the line before: the locked operation itself makes the choice.
    uint64_t before = __atomic_exchange_n((uint64_t *)pool, 0x10, __ATOMIC_SEQ_CST);
    LOAD(uint64_t, 8192) = before;
    _mm_clflush(pool + 8192);
    _mm_sfence();
    printf("%lx %lx\n", before, LOAD(uint64_t, 0));
}

static void counted(void) {
    // At an address that is relative to the instruction; the flags decide about the loop.
    static uint64_t left = 100;
    uint64_t rounds = 0;
    unsigned char *pool = map();
    LOAD(uint64_t, 8192) = LOAD(uint8_t, 0);
    do
        rounds++;
    while (__atomic_sub_fetch(&left, 1, __ATOMIC_SEQ_CST) != 0);
    printf("%lu\n", rounds);
}

static void streamed(void) {
    FILE *file = fopen(path, "rb");
    unsigned char bytes[16];
    if (!file || fread(bytes, 1, 16, file) != 16)
        exit(4);
    printf("%x %x\n", bytes[0], bytes[8]);
    fclose(file);
}

static void looked_at(void) {
    struct stat first, second;
    struct statx third;
    // By a path that is spelt differently.
    char other[4096];
    char *name = strrchr(path, '/');
    snprintf(other, sizeof other, "%.*s/.//%s", (int)(name - path), path, name + 1);
    if (stat(other, &first) || lstat(path, &second) || access(path, R_OK) ||
        statx(AT_FDCWD, path, 0, STATX_INO, &third))
        exit(4);
    if (first.st_ino != second.st_ino || first.st_ino != third.stx_ino)
        exit(5);
    printf("%lu\n", (unsigned long)first.st_ino);
}

static void tidy(void) {
    // As daemons do.
    for (int other = 3; other < 1024; other++)
        close(other);
    unsigned char *pool = map();
    close_range(3, ~0U, 0);
    printf("%x\n", LOAD(uint8_t, 0));
}

static void linked(void) {
    // A link to the pool, created before it is opened, from its directory.
    char link[4096];
    snprintf(link, sizeof link, "%s.link", path);
    symlink(path, link);
    if (chdir(link) == 0)
        exit(5);
    *strrchr(link, '/') = 0;
    if (chdir(link))
        exit(4);
    fd = open("pool.link", O_RDWR);
    unsigned char *pool = map_as(PROT_READ, MAP_SHARED);
    printf("%x\n", LOAD(uint8_t, 0));
}

// A program in words: it is read from the environment, so that tests can make it up.
__attribute__((target("avx2"))) static void scripted(void) {
    unsigned char *pool = map();
    unsigned char bytes[4096];
    char *rest = getenv("SCRIPT");
    char what[8];
    unsigned long at, len, value;
    int used, skip = 0;
    uint64_t seen = 0;
    unsigned char *other = NULL;
    while (rest && sscanf(rest, "%7s %lu %lu %lu %n", what, &at, &len, &value, &used) == 4) {
        rest += used;
        if (skip) {
            skip = 0;
            continue;
        }
        size_t count = 0;
        if (!strcmp(what, "load")) {
            uint64_t got = len == 1   ? LOAD(uint8_t, at)
                           : len == 2 ? LOAD(uint16_t, at)
                           : len == 4 ? LOAD(uint32_t, at)
                                      : LOAD(uint64_t, at);
            memcpy(bytes, &got, count = 8);
        } else if (!strcmp(what, "vector")) {
            __m256i got = _mm256_loadu_si256((void *)(pool + at));
            __asm__ volatile("" : "+x"(got));
            _mm256_storeu_si256((void *)bytes, got);
            count = 32;
        } else if (!strcmp(what, "store")) {
            if (len == 1)
                LOAD(uint8_t, at) = value;
            else if (len == 2)
                LOAD(uint16_t, at) = value;
            else if (len == 4)
                LOAD(uint32_t, at) = value;
            else
                LOAD(uint64_t, at) = value;
        } else if (!strcmp(what, "copy")) {
            memcpy(bytes, pool + at, count = len);
        } else if (!strcmp(what, "move")) {
            memmove(pool + value, pool + at, len);
        } else if (!strcmp(what, "set")) {
            memset(pool + at, value, len);
        } else if (!strcmp(what, "rep")) {
            void *to = bytes, *from = pool + at;
            count = len;
            __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(len) : : "memory");
        } else if (!strcmp(what, "repset")) {
            void *to = pool + at;
            __asm__ volatile("rep stosb" : "+D"(to), "+c"(len) : "a"(value) : "memory");
        } else if (!strcmp(what, "add")) {
            uint64_t got = __atomic_fetch_add((uint64_t *)(pool + at), value, __ATOMIC_SEQ_CST);
            memcpy(bytes, &got, count = 8);
        } else if (!strcmp(what, "pread")) {
            if (pread(fd, bytes, count = len, at) != (ssize_t)len)
                exit(4);
        } else if (!strcmp(what, "pwrite")) {
            memset(bytes, value, len);
            if (pwrite(fd, bytes, len, at) != (ssize_t)len)
                exit(4);
        } else if (!strcmp(what, "push")) {
            // From one page of the pool to its file.
            if (pwrite(fd, pool + at, len, value) != (ssize_t)len)
                exit(4);
        } else if (!strcmp(what, "again")) {
            munmap(pool, LEN);
            pool = map_as(PROT_READ | PROT_WRITE, MAP_SHARED);
        } else if (!strcmp(what, "other")) {
            unsigned char *before = pool;
            pool = other ? other : map_as(PROT_READ | PROT_WRITE, MAP_SHARED);
            other = before;
        } else if (!strcmp(what, "peek")) {
            unsigned char *own = map_as(PROT_READ | PROT_WRITE, MAP_PRIVATE);
            own[at] += value;
            memcpy(bytes, own + at, count = len);
            munmap(own, LEN);
        } else if (!strcmp(what, "sum")) {
            // Often enough to be detected.
            for (size_t i = 0; i < 40; i++)
                bytes[i % 32] = LOAD(uint8_t, at + i % len);
            count = 32;
        } else if (!strcmp(what, "equal")) {
            bytes[0] = memcmp(pool + at, pool + value, len) == 0;
            count = 1;
        } else if (!strcmp(what, "if")) {
            skip = LOAD(uint8_t, at) & 1;
        }
        for (size_t i = 0; i < count; i++)
            seen = (seen ^ bytes[i]) * 0x100000001b3;
    }
    printf("%lx\n", seen);
}

static void annotated(void) {
    powerfail_skip_detection_begin(1, POWERFAIL_AFTER);
    unsigned char *pool = map();
    uint64_t sum = LOAD(uint8_t, 0);
    powerfail_skip_detection_end(1, POWERFAIL_AFTER);
    powerfail_skip_detection_begin(1, POWERFAIL_BEFORE);
    sum += LOAD(uint8_t, 1);
    powerfail_interest_begin(0, POWERFAIL_AFTER);
    powerfail_interest_begin(1, POWERFAIL_BOTH);
    sum += LOAD(uint8_t, 2);
    powerfail_interest_end(1, POWERFAIL_AFTER);
    sum += LOAD(uint8_t, 3);
    powerfail_interest_begin(1, POWERFAIL_AFTER);
    sum += LOAD(uint8_t, 4);
    powerfail_commit_variable(pool + 4096, 8);
    powerfail_commit_range(pool + 4104, 4, pool + 8192, 100);
    powerfail_complete(1, POWERFAIL_AFTER);
    sum += LOAD(uint8_t, 5);
    printf("%lx\n", sum);
}

/* Regions overlap and skipping nests, also before there is a pool. */
static void nested(void) {
    powerfail_interest_begin(1, POWERFAIL_AFTER);
    powerfail_interest_begin(1, POWERFAIL_AFTER);
    powerfail_skip_detection_begin(1, POWERFAIL_AFTER);
    powerfail_skip_detection_begin(1, POWERFAIL_AFTER);
    unsigned char *pool = map();
    powerfail_skip_detection_end(1, POWERFAIL_AFTER);
    uint64_t sum = LOAD(uint8_t, 0);
    powerfail_skip_detection_end(1, POWERFAIL_AFTER);
    powerfail_skip_detection_end(1, POWERFAIL_AFTER);
    sum += LOAD(uint8_t, 1);
    powerfail_interest_end(1, POWERFAIL_AFTER);
    sum += LOAD(uint8_t, 2);
    powerfail_interest_end(1, POWERFAIL_AFTER);
    powerfail_interest_end(1, POWERFAIL_AFTER);
    sum += LOAD(uint8_t, 3);
    powerfail_interest_begin(1, POWERFAIL_AFTER);
    powerfail_skip_detection_begin(1, POWERFAIL_AFTER);
    sum += LOAD(uint8_t, 4);
    powerfail_skip_detection_end(1, POWERFAIL_AFTER);
    sum += LOAD(uint8_t, 5);
    printf("%lx\n", sum);
}

static void other_sizes(void) {
    unsigned char *pool = map();
    uint8_t low;
    uint64_t high;
    // A comparison, an operand of arithmetic, a sign extension, and a byte of RBX.
    __asm__ volatile("cmpw $1, (%0)" : : "r"(pool) : "cc");
    __asm__ volatile("addl 8(%0), %%eax" : : "r"(pool) : "cc", "eax");
    __asm__ volatile("movslq 16(%1), %0" : "=r"(high) : "r"(pool));
    __asm__ volatile("movb 24(%1), %%bh\n movb %%bh, %0" : "=m"(low) : "D"(pool) : "ebx");
    printf("%d\n", low + (int)high);
}

static void received(void) {
    unsigned char *pool = map();
    int ends[2];
    if (pipe(ends) || write(ends[1], "abcdefgh", 8) != 8 || read(ends[0], pool, 8) != 8)
        exit(4);
    uint64_t first = LOAD(uint64_t, 0);
    printf("%lx %x\n", first, LOAD(uint8_t, 8));
}

static void texts(void) {
    unsigned char *pool = map();
    int len = strlen((char *)pool) + strlen((char *)pool + 100);
    printf("%d %d\n", len, strcmp((char *)pool + 256, "yes"));
}

static void two_stores(void) {
    unsigned char *pool = map();
    LOAD(uint16_t, 2) = 1;
    LOAD(uint8_t, 66) = 1;
    uint64_t sum = LOAD(uint64_t, 0) + LOAD(uint32_t, 64) + LOAD(uint64_t, 0);
    printf("%lx\n", sum);
}

static const struct {
    const char *name;
    void (*run)(void);
} modes[] = {
    {"mixed", mixed},       {"vector", vector},       {"masked", masked},
    {"gathered", gathered}, {"repeated", repeated},   {"crossing", crossing},
    {"locked", locked},     {"overwriting", overwriting}, {"stored", stored},
    {"written", written},   {"printed", printed},     {"from_file", from_file},
    {"to_file", to_file},   {"into_pool", into_pool}, {"twice", twice},
    {"again", again},       {"privately", privately}, {"moved", moved},
    {"crashing", crashing}, {"hanging", hanging},     {"handled", handled},
    {"threads", threads},   {"forking", forking},     {"shortening", shortening},
    {"locking", locking},   {"with_file", with_file}, {"logged", logged}, {"counted", counted},
    {"streamed", streamed}, {"looked_at", looked_at}, {"linked", linked},
    {"tidy", tidy},         {"annotated", annotated}, {"nested", nested}, {"other_sizes", other_sizes},
    {"two_stores", two_stores}, {"received", received},
    {"texts", texts},
    {"into_private", into_private},
    {"becoming", becoming}, {"delegating", delegating},
    {"scripted", scripted}, {"exchanged", exchanged}, {"flushed", flushed},
    {"owning", owning},
};

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    path = arguments[2];
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (!strcmp(modes[i].name, arguments[1])) {
            modes[i].run();
            return 0;
        }
    }
    return 2;
}
