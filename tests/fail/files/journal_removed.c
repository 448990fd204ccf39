// A rollback journal is removed before what it protects is durable.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

int main(int argc, char **argv) {
    files_dir = argv[1];
    static char pages[2 * 4096];
    if (argc > 2) {
        char saved[16] = {0};
        if (read_file("db", pages, sizeof pages) < (ssize_t)sizeof pages) {
            return 0;
        }
        if (read_file("db-journal", saved, sizeof saved) == 2 && saved[0] == saved[1]) {
            return 0; // The pages are rolled back to what the journal has.
        }
        check(pages[0] == pages[4096], "the pages belong to different transactions");
        return 0;
    }
    pages[0] = pages[4096] = 'a';
    create_synced("db", pages, sizeof pages);
    create_synced("db-journal", "aa", 2);
    int db = open_file("db", O_WRONLY);
    check(pwrite(db, "b", 1, 0) == 1 && pwrite(db, "b", 1, 4096) == 1, "write"); // lost: PF0906
    check(unlink(in_dir("db-journal")) == 0, "unlink");
    sync_dir();
    return 0;
}
