// A record of a log is acknowledged before it is synced.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"
// powerfail: dump = "{bin} {dir} dump"
// powerfail: ack = "^done (.*)$"

#include "../../programs/files.h"

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        char text[256] = {0};
        ssize_t len = read_file("log", text, sizeof text - 1);
        // An incomplete line at the end was never acknowledged.
        while (len > 0 && text[len - 1] != '\n') {
            len--;
        }
        if (len > 0 && !strcmp(argv[2], "dump")) {
            check(fwrite(text, 1, len, stdout) == (size_t)len, "dump");
        }
        return 0;
    }
    create_synced("log", "", 0);
    int log = open_file("log", O_APPEND | O_WRONLY);
    for (int number = 1; number <= 3; number++) {
        char line[32];
        int len = snprintf(line, sizeof line, "order-%d\n", number);
        check(write(log, line, len) == len, "write"); // lost: PF0903
        printf("done order-%d\n", number);
        fflush(stdout);
        check(fdatasync(log) == 0, "fdatasync");
    }
    close(log);
    return 0;
}
