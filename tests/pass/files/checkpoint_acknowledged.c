// A record is synced in a log and acknowledged, then written to the file that it belongs to. A checkpoint removes the log, and the
// file is not synced before: the record was durable when it was acknowledged, and is not any more.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"
// powerfail: dump = "{bin} {dir} dump"
// powerfail: ack = "^done (.*)$"

#include "../../programs/files.h"

enum { LEN = 8 };

static int recover(int dumps) {
    char record[LEN + 1] = "";
    if (read_file("log", record, LEN) != LEN) {
        read_file("table", record, LEN);
    }
    if (dumps && record[0]) {
        printf("%s\n", record);
    }
    return 0;
}

static void put(const char *record) {
    create_synced("log", record, LEN);
    printf("done %s\n", record);
    fflush(stdout);
}

static void checkpoint(const char *record) {
    int table = open_file("table", O_WRONLY);
    check(pwrite(table, record, LEN, 0) == LEN, "write");
    check(fsync(table) == 0, "fsync");
    close(table);
    check(unlink(in_dir("log")) == 0, "unlink");
    sync_dir();
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        return recover(!strcmp(argv[2], "dump"));
    }
    create_synced("table", "record-0", LEN);
    put("record-1");
    checkpoint("record-1");
    return 0;
}
