// A directory is reported as made before its parent is synced.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"
// powerfail: dump = "{bin} {dir} dump"
// powerfail: ack = "^saved (.*)$"

#include "../../programs/files.h"

static int recover(void) {
    if (access(in_dir("archive"), F_OK) == 0) {
        puts("archive");
    }
    return 0;
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        return recover();
    }
    check(mkdir(in_dir("archive"), 0755) == 0, "mkdir"); // lost: PF0902
    puts("saved archive");
    fflush(stdout);
    return 0;
}
