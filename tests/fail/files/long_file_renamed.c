// A file of two pages is renamed before it is synced: the new name can survive with nothing of it, or with a part. Both are
// one bug, and one fsync prevents both.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

enum { LEN = 6000 };

static int recover(void) {
    static char text[LEN + 1];
    ssize_t len = read_file("settings", text, sizeof text);
    check(len < 0 || (len == LEN && text[0] == text[LEN - 1] && text[0] != 0), "settings");
    return 0;
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        return recover();
    }
    static char text[LEN];
    memset(text, 'a', LEN);
    create_synced("settings", text, LEN);
    memset(text, 'b', LEN);
    int file = open_file("settings.tmp", O_CREAT | O_TRUNC | O_WRONLY);
    check(write(file, text, LEN) == LEN, "write"); // lost: PF0901
    close(file);
    check(rename(in_dir("settings.tmp"), in_dir("settings")) == 0, "rename");
    return 0;
}
