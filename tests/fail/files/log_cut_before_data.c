// A log is cut off before the data that it describes is durable.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

static int recover(void) {
    char data[64] = {0}, log[64] = {0};
    ssize_t logged = read_file("log", log, sizeof log - 1);
    ssize_t len = read_file("data", data, sizeof data - 1);
    if (logged == 5 && !strcmp(log, "blue\n")) {
        return 0; // The data is taken from the log.
    }
    check(len < 0 || !strcmp(data, "red \n") || !strcmp(data, "blue\n"), "data");
    check(access(in_dir("changed"), F_OK) != 0 || !strcmp(data, "blue\n"), "the change");
    return 0;
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        return recover();
    }
    create_synced("data", "red \n", 5);
    create_synced("log", "blue\n", 5);
    create_synced("changed", "", 0);
    int data = open_file("data", O_WRONLY), log = open_file("log", O_WRONLY);
    check(pwrite(data, "blue\n", 5, 0) == 5, "write"); // lost: PF0906
    check(ftruncate(log, 0) == 0, "ftruncate");
    return 0;
}
