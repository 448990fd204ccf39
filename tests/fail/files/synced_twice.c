// Every record is synced twice.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

static int recover(void) {
    char text[64] = {0};
    ssize_t len = read_file("log", text, sizeof text - 1);
    for (ssize_t at = 0; at < len; at++) {
        check(text[at] == 'r' || text[at] == 0, "record");
    }
    return 0;
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        return recover();
    }
    create_synced("log", "", 0);
    int log = open_file("log", O_WRONLY | O_APPEND);
    for (int number = 0; number < 3; number++) {
        check(write(log, "r", 1) == 1 && fdatasync(log) == 0, "write");
        check(fsync(log) == 0, "fsync"); // expect: PF0911
    }
    return 0;
}
