// Two files are renamed, and only the second one may be there without the other: POSIX promises no order.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"
// powerfail: flags = "--fs posix"

#include "../../programs/files.h"

static int recover(void) {
    check(access(in_dir("index"), F_OK) != 0 || access(in_dir("data"), F_OK) == 0, "an index without data");
    return 0;
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        return recover();
    }
    create_synced("data.new", "data", 4);
    create_synced("index.new", "index", 5);
    check(rename(in_dir("data.new"), in_dir("data")) == 0, "rename"); // lost: PF0301
    check(rename(in_dir("index.new"), in_dir("index")) == 0, "rename");
    return 0;
}
