// fflush and fclose make nothing durable.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

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
    FILE *file = fopen(in_dir("settings.tmp"), "w");
    check(file != NULL && fputs("colour=red\n", file) >= 0 && fflush(file) == 0, "write"); // lost: PF0901
    fclose(file);
    check(rename(in_dir("settings.tmp"), in_dir("settings")) == 0, "rename");
    return 0;
}
