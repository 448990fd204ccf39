// Appends the lines of its input to a list in a libpmemobj pool, under a lock in the pool, each with the time,
// the process id and a random number.
#include <libpmemobj.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

struct entry {
    PMEMoid next;
    struct timespec time;
    unsigned long random;
    int process;
    char text[100];
};

struct root {
    PMEMmutex lock;
    PMEMoid first;
};

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    PMEMobjpool *pool = pmemobj_open(argv[1], "objects");
    if (!pool)
        pool = pmemobj_create(argv[1], "objects", PMEMOBJ_MIN_POOL, 0600);
    if (!pool)
        return 3;
    struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof *root));
    char line[100];
    while (fgets(line, sizeof line, stdin)) {
        TX_BEGIN_PARAM(pool, TX_PARAM_MUTEX, &root->lock, TX_PARAM_NONE) {
            pmemobj_tx_add_range_direct(&root->first, sizeof root->first);
            PMEMoid oid = pmemobj_tx_zalloc(sizeof(struct entry), 1);
            struct entry *entry = pmemobj_direct(oid);
            entry->next = root->first;
            clock_gettime(CLOCK_REALTIME, &entry->time);
            if (getrandom(&entry->random, sizeof entry->random, 0) < 0)
                pmemobj_tx_abort(1);
            entry->process = getpid();
            strcpy(entry->text, line);
            root->first = oid;
        } TX_END
    }
    pmemobj_close(pool);
    return 0;
}
