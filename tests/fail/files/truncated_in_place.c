// A file is truncated and written anew: for a moment it is empty.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        char text[64] = {0};
        ssize_t len = read_file("list", text, sizeof text - 1);
        check(len < 0 || !strcmp(text, "a b c\n") || !strcmp(text, "a b c d\n"), "list");
        return 0;
    }
    create_synced("list", "a b c\n", 6);
    int file = open(in_dir("list"), O_TRUNC | O_WRONLY); // expect: PF0905
    check(write(file, "a b c d\n", 8) == 8 && fsync(file) == 0, "write");
    close(file);
    return 0;
}
