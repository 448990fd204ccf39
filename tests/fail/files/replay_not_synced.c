// Recovery replays a log into the database, and removes the log before the database is synced: a second power failure,
// during recovery, loses both.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"
// powerfail: flags = "--depth 2"
// powerfail: says = "in a power failure during recovery"

#include "../../programs/files.h"

static char pages[2 * 4096];

static void replay(char value) {
    int db = open_file("db", O_WRONLY);
    check(pwrite(db, &value, 1, 0) == 1 && pwrite(db, &value, 1, 4096) == 1, "replay"); // expect: PF0906
    check(unlink(in_dir("log")) == 0, "unlink");
    sync_dir();
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        char saved[16] = {0};
        if (read_file("db", pages, sizeof pages) < (ssize_t)sizeof pages) {
            return 0;
        }
        // The second byte is the end of a record that was written as a whole.
        if (read_file("log", saved, sizeof saved) == 2 && saved[0] == saved[1] && saved[0] != 0) {
            replay(saved[0]);
        }
        check(read_file("db", pages, sizeof pages) == (ssize_t)sizeof pages, "read");
        check(pages[0] == pages[4096], "the pages belong to different transactions");
        return 0;
    }
    pages[0] = pages[4096] = 'a';
    create_synced("db", pages, sizeof pages);
    create_synced("log", "bb", 2);
    int db = open_file("db", O_WRONLY);
    check(pwrite(db, "b", 1, 0) == 1 && pwrite(db, "b", 1, 4096) == 1, "write");
    check(fsync(db) == 0, "fsync");
    check(unlink(in_dir("log")) == 0, "unlink");
    sync_dir();
    return 0;
}
