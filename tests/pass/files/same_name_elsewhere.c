// Two directories have a file with the same name, in which a page is durable before another one names it.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

enum { PAGE = 4096 };

static char page[PAGE];

static const char *filled(char first) {
    memset(page, first, PAGE);
    return page;
}

static void make(const char *name, int is_synced) {
    int file = open_file(name, O_CREAT | O_RDWR);
    check(pwrite(file, filled('0'), PAGE, 0) == PAGE, "write");
    check(fsync(file) == 0, "fsync");
    check(pwrite(file, filled('p'), PAGE, PAGE) == PAGE, "write");
    check(!is_synced || fsync(file) == 0, "fsync");
    check(pwrite(file, filled('1'), PAGE, 0) == PAGE, "write"); // the page exists now
    check(fsync(file) == 0, "fsync");
    close(file);
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    const char *names[] = {"users/tree", "groups/tree"};
    if (argc > 2) {
        for (int i = 0; i < 2; i++) {
            char tree[2 * PAGE] = {0};
            ssize_t len = read_file(names[i], tree, sizeof tree);
            check(len <= 0 || tree[0] != '1' || (len == 2 * PAGE && tree[PAGE] == 'p'), names[i]);
        }
        return 0;
    }
    check(mkdir(in_dir("users"), 0755) == 0 && mkdir(in_dir("groups"), 0755) == 0, "mkdir");
    for (int i = 0; i < 2; i++) {
        make(names[i], 1);
    }
    return 0;
}
