// Settings are replaced twice from two places, and the new file is not synced before it gets the name. A crash that loses the
// first one after all has to lose what was done later, too: that is the same bug, not one of what was done later.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

static __attribute__((noinline)) void save(const char *text) {
    int file = open_file("settings.tmp", O_CREAT | O_TRUNC | O_WRONLY);
    size_t len = strlen(text);
    check(write(file, text, len) == (ssize_t)len, "write");
    check(fsync(file) == 0, "fsync");
    close(file);
    check(rename(in_dir("settings.tmp"), in_dir("settings")) == 0, "rename");
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        char text[64] = {0};
        read_file("settings", text, sizeof text - 1);
        const char *all[] = {"colour=red\n", "colour=blue\n", "colour=green\n"};
        for (int number = 0; number < 3; number++) {
            if (!strcmp(text, all[number])) {
                return 0;
            }
        }
        return text[0] == 0 ? 2 : 3;
    }
    create_synced("settings", "colour=red\n", 11);
    save("colour=blue\n");
    for (int number = 0; number < 8; number++) {
        char name[32];
        snprintf(name, sizeof name, "note-%d", number);
        close(open_file(name, O_CREAT | O_WRONLY));
    }
    save("colour=green\n");
    return 0;
}
