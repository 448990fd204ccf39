// Old and new settings are exchanged before the new ones are durable.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

#include <linux/fs.h>
#include <sys/syscall.h>

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
    create_synced("settings", "colour=red\n", 11);
    int file = open_file("settings.new", O_CREAT | O_WRONLY);
    check(write(file, "colour=blue\n", 12) == 12, "write"); // lost: PF0901
    close(file);
    // The system call: older C libraries have no function for it.
    long done = syscall(SYS_renameat2, AT_FDCWD, in_dir("settings.new"), AT_FDCWD, in_dir("settings"),
                        RENAME_EXCHANGE);
    check(done == 0, "exchange");
    return 0;
}
