// A file is opened, cut to nothing and written anew, the first time when it does not exist yet. It is empty after two different
// operations, and both are this bug.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

static void save(const char *text) {
    int file = open_file("counter", O_CREAT | O_RDWR);
    check(ftruncate(file, 0) == 0, "ftruncate"); // expect: PF0905
    check(write(file, text, 4) == 4 && fsync(file) == 0, "write");
    close(file);
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        char text[8] = {0};
        ssize_t len = read_file("counter", text, sizeof text);
        check(len < 0 || (len == 4 && text[3] == '\n'), "counter");
        return 0;
    }
    save("001\n");
    save("002\n");
    return 0;
}
