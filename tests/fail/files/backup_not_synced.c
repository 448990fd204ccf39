// A copy is made before data is overwritten, and it is not durable when the overwriting begins.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"
// powerfail: says = "is lost and a part of the write to data survives"

#include "../../programs/files.h"

#define LEN 6000

static int is_whole(const char *name) {
    static char bytes[LEN + 1];
    if (read_file(name, bytes, sizeof bytes) != LEN) {
        return 0;
    }
    for (int at = 1; at < LEN; at++) {
        if (bytes[at] != bytes[0]) {
            return 0;
        }
    }
    return bytes[0] != 0;
}

int main(int argc, char **argv) {
    static char old[LEN], new[LEN];
    files_dir = argv[1];
    memset(old, 'o', sizeof old);
    memset(new, 'n', sizeof new);
    if (argc > 2) {
        char byte;
        check(read_file("data", &byte, 1) < 0 || is_whole("data") || is_whole("backup"), "neither data nor backup");
        return 0;
    }
    create_synced("data", old, LEN);
    int copy = open_file("backup", O_CREAT | O_WRONLY);
    check(pwrite(copy, old, LEN, 0) == LEN, "backup"); // lost: PF0908
    int data = open_file("data", O_WRONLY);
    check(pwrite(data, new, LEN, 0) == LEN, "data");
    check(fsync(data) == 0, "fsync");
    close(copy);
    check(unlink(in_dir("backup")) == 0, "unlink");
    return 0;
}
