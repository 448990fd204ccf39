// A program that is run repeatedly: commands on standard input, in a file or as arguments, on a libpmemobj
// pool with a list of numbers. Each line is a command and a number.
//
// i N insert, r remove the first, s N set the value of the first, g grow a table, and typical behaviour of
// fuzzing targets: c crash, a abort, l loop, f fork and loop, w write beside the pool, t truncate the pool, u
// unlink it, e N exit with N, b write endlessly, T create a thread and store in it, k kill the parent.
#include <libpmemobj.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct node {
    PMEMoid next;
    uint64_t value;
    char text[48];
};

struct root {
    PMEMoid first;
    uint64_t count;
    PMEMoid table;
    uint64_t table_len;
};

static PMEMobjpool *pool;
static PMEMoid root_oid;
static const char *pool_path;

static struct root *root(void) { return pmemobj_direct(root_oid); }

static void insert(uint64_t value) {
    TX_BEGIN(pool) {
        pmemobj_tx_add_range(root_oid, 0, sizeof(struct root));
        PMEMoid oid = pmemobj_tx_zalloc(sizeof(struct node), 1);
        struct node *node = pmemobj_direct(oid);
        node->value = value;
        node->next = root()->first;
        snprintf(node->text, sizeof node->text, "number %lu", (unsigned long)value);
        root()->first = oid;
        root()->count++;
    }
    TX_END
}

static void take(void) {
    if (OID_IS_NULL(root()->first))
        return;
    TX_BEGIN(pool) {
        pmemobj_tx_add_range(root_oid, 0, sizeof(struct root));
        PMEMoid oid = root()->first;
        root()->first = ((struct node *)pmemobj_direct(oid))->next;
        root()->count--;
        pmemobj_tx_free(oid);
    }
    TX_END
}

static void set(uint64_t value) {
    if (OID_IS_NULL(root()->first))
        return;
    struct node *node = pmemobj_direct(root()->first);
    node->value = value;
    pmemobj_persist(pool, &node->value, sizeof node->value);
}

static void grow(void) {
    TX_BEGIN(pool) {
        pmemobj_tx_add_range(root_oid, 0, sizeof(struct root));
        root()->table_len += 512;
        PMEMoid table = pmemobj_tx_zalloc(root()->table_len * 8, 2);
        memset(pmemobj_direct(table), 1, root()->table_len * 8);
        if (!OID_IS_NULL(root()->table))
            pmemobj_tx_free(root()->table);
        root()->table = table;
    }
    TX_END
}

static void *in_thread(void *argument) {
    insert((uint64_t)argument);
    return NULL;
}

static void write_beside(const char *name, int endless) {
    char path[4096];
    snprintf(path, sizeof path, "%s.%s", pool_path, name);
    int fd = open(path, O_CREAT | O_RDWR, 0600);
    static char block[1 << 16];
    do {
        if (write(fd, block, sizeof block) < 0)
            break;
    } while (endless);
    close(fd);
}

static void command(const char *line) {
    unsigned long number = strtoul(line + 1, NULL, 10);
    pthread_t thread;
    switch (line[0]) {
    case 'i': insert(number); break;
    case 'r': take(); break;
    case 's': set(number); break;
    case 'g': grow(); break;
    case 'c': *(volatile int *)8 = 1; break;
    case 'a': abort();
    case 'l': for (;;) pause();
    case 'f':
        if (fork() == 0)
            for (;;) insert(number), pause();
        break;
    case 'w': write_beside("beside", 0); break;
    case 'b': write_beside("endless", 1); break;
    case 't': if (truncate(pool_path, 4096)) exit(7); break;
    case 'u': unlink(pool_path); break;
    case 'e': exit((int)number);
    case 'T':
        if (pthread_create(&thread, NULL, in_thread, (void *)number) == 0)
            pthread_join(thread, NULL);
        break;
    case 'k': kill(getppid(), SIGKILL); break;
    case 'd': chdir("/"); break;
    default: break;
    }
}

static void *idle(void *argument) {
    (void)argument;
    for (;;)
        pause();
}

static void open_pool(void) {
    if (access(pool_path, F_OK) == 0)
        pool = pmemobj_open(pool_path, "repeated");
    else
        pool = pmemobj_create(pool_path, "repeated", PMEMOBJ_MIN_POOL, 0600);
    if (!pool)
        exit(3);
    root_oid = pmemobj_root(pool, sizeof(struct root));
}

// By an instruction of its own, so that no function of the C library is called.
static void close_all(void) {
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(SYS_close_range), "D"(3L), "S"(0xffffffffL), "d"(0L)
                     : "rcx", "r11", "memory");
}

// repeated POOL stdin|file PATH|args WORD...|nothing|thread-first|thread-then|late|closing
int main(int argc, char **argv) {
    pool_path = argv[1];
    const char *how = argv[2];
    pthread_t thread;
    if (!strcmp(how, "nothing"))
        return 5;
    if (!strcmp(how, "thread-first"))
        pthread_create(&thread, NULL, idle, NULL);
    char first[128] = "";
    if (!strcmp(how, "late") && !fgets(first, sizeof first, stdin))
        return 6;
    if (!strcmp(how, "closing"))
        close_all();
    open_pool();
    if (!strcmp(how, "no-input"))
        return 9;
    if (!strcmp(how, "thread-then"))
        pthread_create(&thread, NULL, idle, NULL);
    if (first[0])
        command(first);
    if (!strcmp(how, "args")) {
        for (int at = 3; at < argc; at++)
            command(argv[at]);
    } else {
        FILE *input = strcmp(how, "file") ? stdin : fopen(argv[3], "r");
        if (!input)
            return 4;
        char line[128];
        while (fgets(line, sizeof line, input))
            command(line);
    }
    printf("%lu\n", (unsigned long)root()->count);
    pmemobj_close(pool);
    return 0;
}
