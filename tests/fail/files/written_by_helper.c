// Two files are written by a helper that gets a descriptor. The line that forgets the sync is the one that calls it.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

static void write_all(int file, const char *text) {
    size_t len = strlen(text);
    check(write(file, text, len) == (ssize_t)len, "write");
}

static void add_table(void) {
    int file = open_file("table", O_CREAT | O_WRONLY);
    write_all(file, "one=1\n"); // lost: PF0301
    close(file);
}

static void add_manifest(void) {
    int file = open_file("manifest.tmp", O_CREAT | O_WRONLY);
    write_all(file, "table\n");
    fsync(file);
    close(file);
    check(rename(in_dir("manifest.tmp"), in_dir("manifest")) == 0, "rename");
    sync_dir();
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    char read[64] = {0};
    if (argc > 2) {
        if (read_file("manifest", read, sizeof read - 1) < 0) {
            return 0;
        }
        return read_file("table", read, sizeof read - 1) < 0 || strcmp(read, "one=1\n");
    }
    add_table();
    add_manifest();
    return 0;
}
