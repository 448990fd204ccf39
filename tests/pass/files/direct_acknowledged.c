// A record is written with O_DIRECT, which passes the page cache by, and O_DSYNC, which makes it durable.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"
// powerfail: dump = "{bin} {dir} dump"
// powerfail: ack = "^done (.*)$"

#include "../../programs/files.h"

enum { SECTOR = 512, RECORD = 4096, RECORDS = 3 };

// A record is there if all of its sectors are.
static int is_whole(const char *record, char number) {
    for (int at = 0; at < RECORD; at += SECTOR) {
        if (record[at] != number) {
            return 0;
        }
    }
    return 1;
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    static char bytes[RECORDS * RECORD + 1];
    if (argc > 2) {
        ssize_t len = read_file("records", bytes, sizeof bytes);
        for (int number = 0; number < RECORDS && len >= (number + 1) * RECORD; number++) {
            if (is_whole(bytes + number * RECORD, '1' + number) && !strcmp(argv[2], "dump")) {
                printf("record-%d\n", number + 1);
            }
        }
        return 0;
    }
    create_synced("records", bytes, RECORDS * RECORD);
    int flags = O_WRONLY | O_DSYNC;
    int file = open(in_dir("records"), flags | O_DIRECT | O_CLOEXEC);
    if (file < 0) {
        // The file system may not have it.
        file = open_file("records", flags);
    }
    char *record;
    check(posix_memalign((void **)&record, RECORD, RECORD) == 0, "memory");
    for (int number = 0; number < RECORDS; number++) {
        memset(record, '1' + number, RECORD);
        check(pwrite(file, record, RECORD, number * RECORD) == RECORD, "write");
        printf("done record-%d\n", number + 1);
        fflush(stdout);
    }
    close(file);
    return 0;
}
