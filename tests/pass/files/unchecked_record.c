// Recovery counts a record of a log that is not synced yet, if all of it is there.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"
// powerfail: flags = "--races --strict"

#include "../../programs/files.h"

#include <stdint.h>

struct record {
    uint32_t value;
    uint32_t inverse;
};

static int recover(void) {
    struct record records[16];
    ssize_t len = read_file("log", (char *)records, sizeof records);
    int count = 0;
    for (ssize_t at = 0; (at + 1) * (ssize_t)sizeof *records <= len; at++) {
        count += records[at].value == ~records[at].inverse;
    }
    printf("%d records\n", count);
    return 0;
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        return recover();
    }
    create_synced("log", "", 0);
    int log = open_file("log", O_WRONLY | O_APPEND);
    for (uint32_t number = 1; number <= 3; number++) {
        struct record record = {number, ~number};
        check(write(log, &record, sizeof record) == sizeof record, "write");
        check(fdatasync(log) == 0, "fdatasync");
    }
    return 0;
}
