// A file without a name gets one before its data is durable.
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
    int file = open(files_dir, O_TMPFILE | O_WRONLY, 0644);
    check(file >= 0 && write(file, "colour=red\n", 11) == 11, "write"); // lost: PF0901
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    check(linkat(AT_FDCWD, path, AT_FDCWD, in_dir("settings"), AT_SYMLINK_FOLLOW) == 0, "link");
    close(file);
    return 0;
}
