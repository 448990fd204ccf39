// A file is replaced again and again by temporary files with names of their own, none of which is synced. That is one bug.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

static void save(int number) {
    char name[256], text[64];
    snprintf(name, sizeof name, "%s", in_dir("XXXXXX"));
    int length = snprintf(text, sizeof text, "state %d end\n", number);
    int fd = mkstemp(name);
    check(fd >= 0, "mkstemp");
    check(write(fd, text, length) == length, "write"); // lost: PF0901
    close(fd);
    check(rename(name, in_dir("state")) == 0, "rename");
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        char text[64] = {0};
        int number, end = 0;
        ssize_t len = read_file("state", text, sizeof text - 1);
        check(len < 0 || (sscanf(text, "state %d end\n%n", &number, &end) == 1 && end == len), "state");
        return 0;
    }
    for (int number = 0; number < 3; number++) {
        save(number);
    }
    return 0;
}
