// A symbolic link is switched to a new version that is not durable.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

static int recover(void) {
    char text[64] = {0};
    ssize_t len = read_file("current", text, sizeof text - 1);
    check(len < 0 || !strcmp(text, "content"), "the current version");
    return 0;
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        return recover();
    }
    create_synced("version1", "content", 7);
    check(symlink("version1", in_dir("current")) == 0, "symlink");
    sync_dir();
    int file = open_file("version2", O_CREAT | O_WRONLY);
    check(write(file, "content", 7) == 7, "write"); // lost: PF0301
    close(file);
    check(symlink("version2", in_dir("next")) == 0, "symlink");
    check(rename(in_dir("next"), in_dir("current")) == 0, "rename");
    return 0;
}
