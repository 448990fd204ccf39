// A record of several pages is written over an older one with one write, and nothing tells a torn one.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

enum { LEN = 9000 };

static int recover(void) {
    static char bytes[LEN];
    ssize_t len = read_file("record", bytes, sizeof bytes);
    for (ssize_t at = 1; at < len; at++) {
        check(bytes[at] == bytes[0], "record");
    }
    return 0;
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        return recover();
    }
    static char bytes[LEN];
    memset(bytes, 'a', LEN);
    create_synced("record", bytes, LEN);
    memset(bytes, 'b', LEN);
    int file = open_file("record", O_WRONLY);
    check(pwrite(file, bytes, LEN, 0) == LEN && fsync(file) == 0, "write"); // lost: PF0904
    return 0;
}
