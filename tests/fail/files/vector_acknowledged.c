// A record is written in parts with writev and acknowledged without a sync.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"
// powerfail: dump = "{bin} {dir} dump"
// powerfail: ack = "^saved (.*)$"

#include "../../programs/files.h"

#include <sys/uio.h>

static int recover(void) {
    char text[64] = {0};
    if (read_file("log", text, sizeof text - 1) == 10) {
        fputs(text, stdout);
    }
    return 0;
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        return recover();
    }
    create_synced("log", "", 0);
    int file = open_file("log", O_WRONLY | O_APPEND);
    struct iovec parts[2] = {{"record", 6}, {" 01\n", 4}};
    check(writev(file, parts, 2) == 10, "writev"); // lost: PF0903
    puts("saved record 01");
    fflush(stdout);
    return 0;
}
