// A file that names the current version is durable before that version.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

static int recover(void) {
    char name[64] = {0}, text[64] = {0};
    if (read_file("CURRENT", name, sizeof name - 1) <= 0) {
        return 0;
    }
    check(read_file(name, text, sizeof text - 1) > 0 && !strcmp(text, "content"), name);
    return 0;
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        return recover();
    }
    create_synced("version1", "content", 7);
    create_synced("CURRENT", "version1", 8);
    int file = open_file("version2", O_CREAT | O_WRONLY);
    check(write(file, "content", 7) == 7, "write"); // lost: PF0908
    close(file);
    int current = open_file("CURRENT", O_WRONLY);
    check(pwrite(current, "version2", 8, 0) == 8, "write");
    check(fsync(current) == 0, "fsync");
    return 0;
}
