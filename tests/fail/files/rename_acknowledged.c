// A rename is reported as done before its directory is synced.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"
// powerfail: dump = "{bin} {dir} dump"
// powerfail: ack = "^saved (.*)$"

#include "../../programs/files.h"

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        char text[64] = {0};
        if (read_file("settings", text, sizeof text - 1) > 0 && !strcmp(argv[2], "dump")) {
            puts(text);
        }
        return 0;
    }
    int file = open_file("settings.tmp", O_CREAT | O_TRUNC | O_WRONLY);
    check(write(file, "blue", 4) == 4 && fsync(file) == 0, "write");
    close(file);
    check(rename(in_dir("settings.tmp"), in_dir("settings")) == 0, "rename"); // lost: PF0902
    puts("saved blue");
    fflush(stdout);
    return 0;
}
