// A sync fails, and is made again without the data being written again: it succeeds, and the data is lost.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/failing_sync.h"

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        char text[64] = {0};
        ssize_t len = read_file("log", text, sizeof text - 1);
        check(len < 0 || len == 0 || text[0] == 'r' || text[0] == 0, "log");
        return 0;
    }
    create_synced("log", "", 0);
    int log = open_file("log", O_WRONLY | O_APPEND);
    int failing = with_failing_sync(log);
    check(write(log, "record", 6) == 6, "write"); // expect: PF0907
    if (fsync(failing) != 0) {
        check(fsync(log) == 0, "fsync");
    }
    return 0;
}
