// The old generation is removed before the new one is durable.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        char text[16] = {0};
        // The newest generation that is complete.
        if (read_file("data.2", text, sizeof text - 1) > 0 && !strcmp(text, "two!")) {
            return 0;
        }
        memset(text, 0, sizeof text);
        int is_fresh = access(in_dir("data.1"), F_OK) != 0 && access(in_dir("data.2"), F_OK) != 0;
        read_file("data.1", text, sizeof text - 1);
        check(is_fresh || !strcmp(text, "one!"), "no generation is complete");
        return 0;
    }
    create_synced("data.1", "one!", 4);
    int file = open_file("data.2", O_CREAT | O_WRONLY);
    check(write(file, "two!", 4) == 4, "write"); // lost: PF0906
    close(file);
    check(unlink(in_dir("data.1")) == 0, "unlink");
    return 0;
}
