// A new version is written in the directory of the old one, and renamed.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"
// powerfail: flags = "--warnings"

#include "../../programs/files.h"

#include <string>

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        char text[64] = {0};
        ssize_t len = read_file("settings", text, sizeof text - 1);
        check(len < 0 || text[0] == 'o' || text[0] == 'n', "settings");
        return 0;
    }
    create_synced("settings", "old", 3);
    std::string name = std::string(files_dir) + "/settings-XXXXXX";
    int file = mkstemp(&name[0]);
    check(file >= 0 && write(file, "new", 3) == 3 && fsync(file) == 0, "temporary file");
    check(rename(name.c_str(), in_dir("settings")) == 0, "rename");
    sync_dir();
    return 0;
}
