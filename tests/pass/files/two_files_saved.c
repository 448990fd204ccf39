// Two files are replaced by renames in two functions, and none is synced before. These are two bugs: with one of them repaired, the
// other is still there.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

static int is_whole(const char *name, const char *text) {
    char read[64] = {0};
    return read_file(name, read, sizeof read - 1) < 0 || !strcmp(read, text);
}

static void save_users(void) {
    int file = open_file("users.tmp", O_CREAT | O_WRONLY);
    check(write(file, "alice\n", 6) == 6, "write");
    check(fsync(file) == 0, "fsync");
    close(file);
    check(rename(in_dir("users.tmp"), in_dir("users")) == 0, "rename");
}

static void save_groups(void) {
    int file = open_file("groups.tmp", O_CREAT | O_WRONLY);
    check(write(file, "staff\n", 6) == 6, "write");
    check(fsync(file) == 0, "fsync");
    close(file);
    check(rename(in_dir("groups.tmp"), in_dir("groups")) == 0, "rename");
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        return !is_whole("users", "alice\n") || !is_whole("groups", "staff\n");
    }
    save_users();
    save_groups();
    return 0;
}
