// A hole is punched into a log before the data that the log describes is durable.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

enum { PAGE = 4096 };

static int recover(void) {
    static char log[PAGE];
    char data[64] = {0};
    if (read_file("log", log, sizeof log) == PAGE && !strcmp(log, "blue")) {
        return 0; // The data is taken from the log.
    }
    ssize_t len = read_file("data", data, sizeof data - 1);
    check(access(in_dir("changed"), F_OK) != 0 || (len == 4 && !strcmp(data, "blue")), "the change");
    return 0;
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        return recover();
    }
    static char log[PAGE] = "blue";
    create_synced("data", "red ", 4);
    create_synced("log", log, PAGE);
    create_synced("changed", "", 0);
    int data = open_file("data", O_WRONLY), file = open_file("log", O_WRONLY);
    check(pwrite(data, "blue", 4, 0) == 4, "write"); // lost: PF0906
    check(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE) == 0, "hole");
    return 0;
}
