// Queries everything that differs between runs, and creates a libpmemobj pool.
#define _GNU_SOURCE
#include <fcntl.h>
#include <libpmemobj.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct root {
    char text[2048];
};

static volatile sig_atomic_t got_signal;

static void on_signal(int number)
{
    got_signal = number;
}

static unsigned long hash(const unsigned char *bytes, size_t len)
{
    unsigned long hash = 5381;
    for (size_t at = 0; at < len; at++)
        hash = hash * 33 + bytes[at];
    return hash;
}

static pthread_t main_thread;

static void *other(void *out)
{
    struct timespec until;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 2000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&mutex);
    pthread_cond_timedwait(&condition, &mutex, &until);
    pthread_mutex_unlock(&mutex);
    if (pthread_kill(main_thread, SIGUSR2) != 0)
        abort();
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int passed = now.tv_sec > until.tv_sec || (now.tv_sec == until.tv_sec && now.tv_nsec >= until.tv_nsec);
    sprintf(out, "thread %d passed %d;", gettid(), passed);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    char text[2048] = "", part[256];
    unsigned char bytes[64];
#define SAY(...) (sprintf(part, __VA_ARGS__), strcat(text, part))
    SAY("time %ld;", (long)time(NULL));
    struct timeval day;
    gettimeofday(&day, NULL);
    SAY("day %ld.%06ld;", (long)day.tv_sec, (long)day.tv_usec);
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    sleep(1000);
    clock_gettime(CLOCK_MONOTONIC, &after);
    SAY("slept %ld;", (long)(after.tv_sec - before.tv_sec));
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &before);
    SAY("monotonic %ld.%09ld clock %ld;", (long)before.tv_sec, before.tv_nsec, (long)clock());
    clock_gettime(CLOCK_MONOTONIC, &before);
    poll(NULL, 0, 30);
    clock_gettime(CLOCK_MONOTONIC, &after);
    SAY("waited %ld;", (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000);
    getrandom(bytes, 61, 0);
    SAY("getrandom %lx;", hash(bytes, 61));
    getentropy(bytes, 16);
    SAY("getentropy %lx;", hash(bytes, 16));
    syscall(SYS_getrandom, bytes, 32, 0);
    SAY("raw %lx;", hash(bytes, 32));
    SAY("arc4random %x;", arc4random());
    int fd = open("/dev/urandom", O_RDONLY);
    if (read(fd, bytes, 64) != 64)
        return 3;
    close(fd);
    SAY("urandom %lx;", hash(bytes, 64));
    FILE *file = fopen("/proc/sys/kernel/random/uuid", "r");
    char identifier[64] = "";
    if (!fgets(identifier, sizeof identifier, file) || strlen(identifier) != 37)
        return 4;
    fclose(file);
    SAY("uuid %.36s;", identifier);
    srand(time(NULL));
    SAY("rand %d;", rand());
    SAY("pid %d tid %d ppid %d;", getpid(), gettid(), getppid());
    SAY("auxiliary %lx;", hash((unsigned char *)getauxval(AT_RANDOM), 16));
    unsigned long guard;
    __asm__("mov %%fs:0x28, %0" : "=r"(guard));
    SAY("guard %lx;", guard);
    signal(SIGUSR1, on_signal);
    signal(SIGUSR2, on_signal);
    main_thread = pthread_self();
    kill(getpid(), SIGUSR1);
    syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1);
    SAY("signal %d;", (int)got_signal);
    pthread_t thread;
    pthread_create(&thread, NULL, other, part);
    pthread_join(thread, NULL);
    strcat(text, part);
    SAY("from thread %d;", (int)got_signal);
    int ends[2];
    if (pipe(ends) != 0)
        return 5;
    pid_t child = fork();
    if (child == 0) {
        int number = getpid();
        _exit(write(ends[1], &number, sizeof number) != sizeof number);
    }
    int number = 0, status = 0;
    if (read(ends[0], &number, sizeof number) != sizeof number)
        return 6;
    waitpid(child, &status, 0);
    SAY("child %d;", number);
    puts(text);

    PMEMobjpool *pool = pmemobj_create(argv[1], "fixed", PMEMOBJ_MIN_POOL, 0600);
    if (!pool)
        return 7;
    PMEMoid oid = pmemobj_root(pool, sizeof(struct root));
    struct root *root = pmemobj_direct(oid);
    TX_BEGIN(pool) {
        pmemobj_tx_add_range_direct(root, sizeof *root);
        memcpy(root->text, text, sizeof text);
        pmemobj_tx_alloc(100, 1);
    } TX_END
    getrandom(root->text + 2000, 40, 0);
    pmemobj_persist(pool, root, sizeof *root);
    pmemobj_close(pool);
    return 0;
}
