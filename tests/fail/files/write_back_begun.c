// sync_file_range begins to write a new file back, and makes nothing durable.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

static int recover(void) {
    char text[64] = {0};
    ssize_t len = read_file("settings", text, sizeof text - 1);
    check(len < 0 || !strcmp(text, "colour=red\n") || !strcmp(text, "colour=blue\n"), "settings");
    return 0;
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        return recover();
    }
    int file = open_file("settings.tmp", O_CREAT | O_TRUNC | O_WRONLY);
    check(write(file, "colour=red\n", 11) == 11, "write"); // lost: PF0901
    check(sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE) == 0, "sync_file_range");
    close(file);
    check(rename(in_dir("settings.tmp"), in_dir("settings")) == 0, "rename");
    return 0;
}
