// Recoveries that repeat the same accesses often: `hot MODE POOL`. The second page has an open line at its end.
#define _GNU_SOURCE
#include <emmintrin.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define LEN 16384
#define OFTEN 50
#define NOINLINE __attribute__((noinline, noclone))

static int fd;

static unsigned char *map(void *address, int flags) {
    void *pool = mmap(address, LEN, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, 0);
    if (pool == MAP_FAILED) {
        perror("mmap");
        exit(3);
    }
    return pool;
}

NOINLINE static uint64_t load(const volatile uint64_t *from) { return *from; }
NOINLINE static void store(volatile uint64_t *to, uint64_t value) { *to = value; }

// Many kinds of loops. No result depends on the address of the pool.

NOINLINE static uint64_t sum(volatile uint64_t *p, size_t n) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum = sum * 31 + p[i & 31];
    return sum;
}

NOINLINE static uint64_t modify(volatile uint64_t *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        p[i & 7] += i;
        p[(i + 3) & 7] ^= p[i & 15] >> 3;
    }
    return p[0];
}

NOINLINE static uint64_t bytes(volatile uint8_t *p, size_t n) {
    uint64_t result = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i & 1023] == 7)
            result += i;
        else
            result ^= p[(i * 3) & 1023];
        p[(i * 7) & 1023]++;
    }
    return result;
}

NOINLINE static uint64_t floats(volatile double *p, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += p[i & 63] > 1000 ? -1.5 : 0.25;
        p[i & 63] = sum;
    }
    return (uint64_t)(int64_t)(sum * 16);
}

struct node {
    uint32_t next, value;
};

NOINLINE static uint64_t chase(struct node *nodes, size_t n) {
    uint64_t result = 0;
    for (uint32_t i = 0; i < 16; i++) {
        nodes[i].next = (i * 5 + 1) % 16;
        nodes[i].value = i;
    }
    struct node *node = nodes;
    for (size_t i = 0; i < n; i++) {
        result += node->value;
        node->value = (uint32_t)i;
        node = &nodes[node->next];
    }
    return result;
}

static int compare(const void *one, const void *other) {
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return a < b ? -1 : a > b;
}

NOINLINE static uint64_t sorted(uint32_t *p, size_t n) {
    uint64_t result = 0;
    for (size_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < 100; j++)
            p[j] = j * 2654435761u + (uint32_t)i;
        qsort(p, 100, 4, compare);
        result = result * 31 + p[i % 100];
    }
    return result;
}

NOINLINE static uint64_t copied(unsigned char *p, size_t n) {
    unsigned char buffer[2048];
    uint64_t result = 0;
    for (size_t i = 0; i < n; i++) {
        memcpy(buffer, p + i % 50, 1500);
        result += buffer[77];
        memcpy(p + i % 50 + 3, buffer + 1, 700);
        result += memcmp(p, p + 700, 600) > 0;
        p[1900] = 0;
        result += strlen((char *)p + 200);
        // Overlapping: the bytes of the first repeat.
        unsigned char *to = p + 1009, *from = p + 1000;
        size_t len = 300;
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(len) : : "memory");
        to = p + 1400, len = 40;
        __asm__ volatile("rep stosl" : "+D"(to), "+c"(len) : "a"((uint32_t)i) : "memory");
        result = result * 31 + p[1200] + len;
    }
    return result;
}

NOINLINE static uint64_t exchanged(uint64_t *p, size_t n) {
    uint64_t result = 0;
    for (size_t i = 0; i < n; i++) {
        result += __atomic_fetch_add(p + 3, i, __ATOMIC_SEQ_CST);
        result += __atomic_exchange_n((uint32_t *)p + 9, i, __ATOMIC_SEQ_CST);
    }
    return result;
}

static void loops(unsigned char *pool) {
    unsigned char *p = pool + 4096;
    for (size_t i = 0; i < 2048; i++)
        p[i] = (unsigned char)(i * 37);
    printf("%lx ", sum((void *)p, 20000));
    printf("%lx ", modify((void *)p, 20000));
    printf("%lx ", bytes(p, 20000));
    printf("%lx ", floats((void *)(p + 1024), 20000));
    printf("%lx ", chase((void *)(p + 512), 20000));
    printf("%lx ", sorted((void *)(p + 4), 5));
    printf("%lx ", copied(p, 20));
    printf("%lx ", exchanged((void *)p, 20));
    uint64_t all = 0;
    for (size_t i = 0; i < 2048; i++)
        all = all * 131 + p[i];
    printf("%lx\n", all);
}

// The same instruction, finally on the open line.
static void later(unsigned char *pool) {
    uint64_t sum = 0;
    for (int i = 0; i < OFTEN; i++)
        sum += load((void *)(pool + 4096 + 8 * i));
    printf("%lx %lx\n", sum, load((void *)(pool + 8192 - 64)));
}

static sigjmp_buf jump;

static void handler(int signal, siginfo_t *info, void *context) {
    ucontext_t *c = context;
    greg_t *r = c->uc_mcontext.gregs;
    uint64_t at = (uint64_t)r[REG_RIP];
    uint64_t code = at - (uint64_t)load < 64 ? at - (uint64_t)load : at - (uint64_t)store + 0x100;
    printf("signal %d, code %lx, address %lx, rdi %llx, rsi %llx, stack %d\n", signal, code,
           (uint64_t)info->si_addr & 0xfff, r[REG_RDI] & 0xfff, r[REG_RSI] & 0xfff,
           r[REG_RSP] % 16 == 8);
    siglongjmp(jump, 1);
}

static void handle(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
}

// The same instruction, finally on unmapped memory.
static void handled(unsigned char *pool) {
    handle();
    uint64_t sum = 0;
    for (int i = 0; i < OFTEN; i++)
        sum += load((void *)(pool + 4096 + 8 * i));
    if (sigsetjmp(jump, 1) == 0)
        sum += load((void *)0x18);
    printf("%lx\n", sum);
}

// A mapping that has become read-only.
static void read_only(unsigned char *pool) {
    handle();
    for (int i = 0; i < OFTEN; i++)
        store((void *)(pool + 4096), 5);
    mprotect(pool, LEN, PROT_READ);
    if (sigsetjmp(jump, 1) == 0)
        store((void *)(pool + 4096), 6);
    printf("%lx\n", load((void *)(pool + 4096)));
}

// Other memory is now at the address of the pool.
static void replaced(unsigned char *pool) {
    for (int i = 0; i < OFTEN; i++)
        store((void *)(pool + 4096), load((void *)(pool + 4096)) + 1);
    munmap(pool, LEN);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (mmap(pool, LEN, PROT_READ | PROT_WRITE, flags, -1, 0) != pool)
        exit(3);
    uint64_t before = load((void *)(pool + 4096));
    store((void *)(pool + 4096), 77);
    printf("%lx %lx ", before, load((void *)(pool + 4096)));
    unsigned char *again = map(NULL, 0);
    printf("%lx\n", load((void *)(again + 4096)));
}

// Two mappings show the same memory.
static void twice(unsigned char *pool) {
    unsigned char *other = map(NULL, 0);
    uint64_t sum = 0;
    for (int i = 0; i < OFTEN; i++) {
        store((void *)(pool + 4096), i);
        sum = sum * 31 + load((void *)(other + 4096));
        store((void *)(other + 4104), i);
        sum = sum * 31 + load((void *)(pool + 4104));
    }
    printf("%lx\n", sum);
}

static void stores(unsigned char *pool) {
    for (int i = 0; i < OFTEN; i++) {
        store((void *)(pool + 4096 + 8 * i), i);
        if (i % 10 == 0)
            _mm_sfence();
    }
    printf("%lx\n", load((void *)(pool + 4096 + 8 * 7)));
}

// Some lines of the third page, which has no open ones.
static void reads(unsigned char *pool) {
    uint64_t sum = 0;
    for (int i = 0; i < OFTEN; i++)
        sum += load((void *)(pool + 8192 + 64 * (i % 3 * 5)));
    sum += load((void *)(pool + 8192 + 64 * 20 - 4));
    printf("%lx\n", sum);
}

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        void (*run)(unsigned char *);
    } modes[] = {
        {"loops", loops},         {"later", later},       {"handled", handled},
        {"read-only", read_only}, {"replaced", replaced}, {"twice", twice},
        {"stores", stores},       {"reads", reads},
    };
    if (count != 3 || (fd = open(arguments[2], O_RDWR)) < 0)
        return 2;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(arguments[1], modes[i].name) == 0) {
            modes[i].run(map(NULL, 0));
            return 0;
        }
    }
    return 2;
}
