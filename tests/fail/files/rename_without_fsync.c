// Settings are replaced by a rename, and the new file is not synced before it gets the name.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

static void save(const char *text) {
    int file = open_file("settings.tmp", O_CREAT | O_TRUNC | O_WRONLY);
    size_t len = strlen(text);
    check(write(file, text, len) == (ssize_t)len, "write"); // lost: PF0901
    close(file);
    check(rename(in_dir("settings.tmp"), in_dir("settings")) == 0, "rename");
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        char text[64] = {0};
        ssize_t len = read_file("settings", text, sizeof text - 1);
        check(len < 0 || !strcmp(text, "colour=red\n") || !strcmp(text, "colour=blue\n"), "settings");
        return 0;
    }
    create_synced("settings", "colour=red\n", 11);
    save("colour=blue\n");
    return 0;
}
