// The kernel copies a file, and the original is removed before the copy is durable.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

static int recover(void) {
    char text[64] = {0};
    ssize_t len = read_file("old", text, sizeof text - 1);
    if (len <= 0) {
        len = read_file("new", text, sizeof text - 1);
    }
    check(len < 0 || !strcmp(text, "the only copy"), "both copies");
    return 0;
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        return recover();
    }
    create_synced("old", "the only copy", 13);
    int from = open_file("old", O_RDONLY), to = open_file("new", O_CREAT | O_WRONLY);
    check(copy_file_range(from, NULL, to, NULL, 13, 0) == 13, "copy"); // lost: PF0906
    close(from);
    close(to);
    check(unlink(in_dir("old")) == 0, "unlink");
    return 0;
}
