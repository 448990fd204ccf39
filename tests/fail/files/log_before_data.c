// A transaction is marked as done in one file before its data in another one is durable.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        char log[16] = {0}, data[16] = {0};
        read_file("data", data, sizeof data - 1);
        if (read_file("log", log, sizeof log - 1) > 0 && log[0] == 'C') {
            check(!strcmp(data, "balance=7"), "the data of a transaction that is done");
        }
        return 0;
    }
    create_synced("data", "balance=0", 9);
    create_synced("log", "", 0);
    int data = open_file("data", O_WRONLY), log = open_file("log", O_WRONLY);
    check(pwrite(data, "balance=7", 9, 0) == 9, "write"); // lost: PF0908
    check(pwrite(log, "C", 1, 0) == 1, "write");
    check(fsync(log) == 0, "fsync");
    check(fsync(data) == 0, "fsync");
    return 0;
}
