// A child process writes the new file, and its parent renames it without a sync.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

#include <sys/wait.h>

static int recover(void) {
    char text[64] = {0};
    ssize_t len = read_file("settings", text, sizeof text - 1);
    check(len < 0 || !strcmp(text, "colour=red\n") || !strcmp(text, "colour=blue\n"), "settings");
    return 0;
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        return recover();
    }
    pid_t child = fork();
    check(child >= 0, "fork");
    if (child == 0) {
        int file = open_file("settings.tmp", O_CREAT | O_TRUNC | O_WRONLY);
        check(write(file, "colour=red\n", 11) == 11, "write"); // lost: PF0901
        _exit(0);
    }
    int status = 1;
    check(waitpid(child, &status, 0) == child && status == 0, "the child");
    check(rename(in_dir("settings.tmp"), in_dir("settings")) == 0, "rename");
    return 0;
}
