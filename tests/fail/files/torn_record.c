// A record that is longer than a page is trusted as soon as the file is long enough for it.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

#define BYTES 9000

struct record {
    unsigned len;
    unsigned sum;
    char bytes[BYTES];
};

static unsigned sum_of(const struct record *record) {
    unsigned sum = 17;
    for (unsigned at = 0; at < BYTES; at++) {
        sum = sum * 31 + (unsigned char)record->bytes[at];
    }
    return sum;
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    static struct record record;
    if (argc > 2) {
        ssize_t len = read_file("journal", (char *)&record, sizeof record);
        if (len < (ssize_t)sizeof record || record.len != BYTES) {
            return 0;
        }
        for (unsigned at = 0; at < BYTES; at++) {
            check(record.bytes[at] == 'r', "a byte of the record");
        }
        return 0;
    }
    create_synced("journal", "", 0);
    record.len = BYTES;
    memset(record.bytes, 'r', BYTES);
    record.sum = sum_of(&record);
    int journal = open_file("journal", O_WRONLY);
    check(write(journal, &record, sizeof record) == sizeof record, "write"); // lost: PF0904
    check(fsync(journal) == 0, "fsync");
    close(journal);
    return 0;
}
