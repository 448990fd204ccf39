// Two directories have a file with the same name, and a page is named by another one before it is durable, by the same line. Only
// one of the directories is at fault: the message has to say which, and which of two writes.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"
// powerfail: says = "if the write to groups/tree at offset 0x1000 is lost and the write to groups/tree at offset 0x0 survives"

#include "../../programs/files.h"

enum { PAGE = 4096 };

static char page[PAGE];

static void put(int file, off_t at, char first) {
    memset(page, first, PAGE);
    check(pwrite(file, page, PAGE, at) == PAGE, "write"); // lost: PF0908
}

static void make(const char *name, int is_synced) {
    int file = open_file(name, O_CREAT | O_RDWR);
    put(file, 0, '0');
    check(fsync(file) == 0, "fsync");
    put(file, PAGE, 'p');
    check(!is_synced || fsync(file) == 0, "fsync");
    put(file, 0, '1'); // the page exists now
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
    make(names[0], 1);
    make(names[1], 0);
    return 0;
}
