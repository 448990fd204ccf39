// Records are synced in a log and acknowledged. A checkpoint copies them to a table and empties the log, and the table is not synced
// before: what an earlier acknowledgement has promised is gone, before anything else is acknowledged.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"
// powerfail: dump = "{bin} {dir} dump"
// powerfail: ack = "^ok (.*)$"
// powerfail: says = "the truncation to nothing of log survives"

#include "../../programs/files.h"

#include <stdint.h>

struct record {
    uint32_t slot, value, check;
};

static uint32_t checksum(struct record it) { return it.slot ^ it.value ^ 0x5a5a5a5a; }

static void commit(int log, uint32_t slot, uint32_t value) {
    struct record it = {slot, value, 0};
    it.check = checksum(it);
    check(write(log, &it, sizeof it) == sizeof it && fdatasync(log) == 0, "commit");
    printf("ok %u=%u\n", slot, value);
    fflush(stdout);
}

static void checkpoint(int log, int table) {
    struct record it;
    off_t at = 0;
    for (; pread(log, &it, sizeof it, at) == sizeof it && it.check == checksum(it); at += sizeof it) {
        check(pwrite(table, &it.value, 4, it.slot * 4) == 4, "copy"); // lost: PF0906
    }
    check(ftruncate(log, 0) == 0 && lseek(log, 0, SEEK_SET) == 0, "empty the log");
    check(fsync(log) == 0, "fsync");
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    int log = open_file("log", O_CREAT | O_RDWR), table = open_file("table", O_CREAT | O_RDWR);
    if (argc > 2) {
        struct record it;
        uint32_t values[4] = {0};
        check(pread(table, values, sizeof values, 0) >= 0, "table");
        for (off_t at = 0; pread(log, &it, sizeof it, at) == sizeof it && it.check == checksum(it); at += sizeof it) {
            values[it.slot % 4] = it.value;
        }
        for (int slot = 0; slot < 4 && !strcmp(argv[2], "dump"); slot++) {
            printf("%d=%u\n", slot, values[slot]);
        }
        return 0;
    }
    check(fsync(log) == 0 && fsync(table) == 0, "fsync");
    sync_dir();
    commit(log, 0, 10);
    commit(log, 1, 11);
    checkpoint(log, table);
    commit(log, 2, 12);
    return 0;
}
