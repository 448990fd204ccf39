// POSIX promises nothing about the name of a new file before its directory is synced.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"
// powerfail: dump = "{bin} {dir} dump"
// powerfail: ack = "^stored (.*)$"
// powerfail: flags = "--fs posix"

#include "../../programs/files.h"

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        char text[64] = {0};
        if (read_file("message", text, sizeof text - 1) > 0 && !strcmp(argv[2], "dump")) {
            puts(text);
        }
        return 0;
    }
    int file = open(in_dir("message"), O_CREAT | O_WRONLY, 0644); // lost: PF0902
    check(write(file, "hello", 5) == 5 && fsync(file) == 0, "write");
    close(file);
    puts("stored hello");
    fflush(stdout);
    return 0;
}
