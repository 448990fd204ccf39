// Only ext4, xfs and btrfs make the name of a new file durable with the file: elsewhere its directory has to be synced.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"
// powerfail: dump = "{bin} {dir} dump"
// powerfail: ack = "^saved (.*)$"
// powerfail: flags = "--fs posix"

#include "../../programs/files.h"

static int recover(void) {
    char text[64] = {0};
    if (read_file("settings", text, sizeof text - 1) > 0) {
        puts(text);
    }
    return 0;
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        return recover();
    }
    int file = open(in_dir("settings"), O_CREAT | O_WRONLY, 0644);
    check(file >= 0 && write(file, "blue", 4) == 4 && fsync(file) == 0, "write");
    sync_dir();
    puts("saved blue");
    fflush(stdout);
    return 0;
}
