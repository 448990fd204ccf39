// A libpmemobj pool: `accounts create POOL` creates it and leaves a transaction unfinished, `accounts open
// POOL` recovers and prints the content.
#include <libpmemobj.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct root {
    uint64_t from, to;
};

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    if (!strcmp(arguments[1], "create")) {
        PMEMobjpool *pool = pmemobj_create(arguments[2], "accounts", PMEMOBJ_MIN_POOL, 0600);
        PMEMoid object = pmemobj_root(pool, sizeof(struct root));
        struct root *root = pmemobj_direct(object);
        *root = (struct root){100, 0};
        pmemobj_persist(pool, root, sizeof *root);
        printf("%lu\n", (unsigned long)object.off);
        fflush(stdout);
        TX_BEGIN(pool) {
            pmemobj_tx_add_range(object, 0, sizeof *root);
            root->from -= 30;
            root->to += 30;
            _exit(0);
        }
        TX_END
        return 1;
    }
    PMEMobjpool *pool = pmemobj_open(arguments[2], "accounts");
    if (!pool) {
        printf("%s\n", pmemobj_errormsg());
        return 1;
    }
    struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
    printf("%lu %lu\n", (unsigned long)root->from, (unsigned long)root->to);
    pmemobj_close(pool);
    return 0;
}
