// A new version is written on another file system, cannot be renamed from there, and is copied over the old one.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"
// powerfail: flags = "--warnings"
// powerfail: bugs = "2"

#include "../../programs/files.h"

#include <string>

// A directory on another file system than that of the program.
static std::string elsewhere() {
    struct stat here, there;
    check(stat(files_dir, &here) == 0, "stat");
    for (const char *path : {"/dev/shm", "/tmp", "/var/tmp"}) {
        if (stat(path, &there) == 0 && there.st_dev != here.st_dev) {
            return path;
        }
    }
    check(0, "another file system");
    return "";
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        char text[64] = {0};
        ssize_t len = read_file("settings", text, sizeof text - 1);
        check(len < 0 || text[0] == 'o' || text[0] == 'n', "settings");
        return 0;
    }
    create_synced("settings", "old", 3);
    std::string name = elsewhere() + "/settings-XXXXXX";
    int file = mkstemp(&name[0]);
    check(file >= 0 && write(file, "new", 3) == 3 && fsync(file) == 0, "temporary file");
    if (rename(name.c_str(), in_dir("settings")) != 0) { // expect: PF0921
        int copy = open(in_dir("settings"), O_WRONLY | O_TRUNC); // expect: PF0905
        check(copy >= 0 && write(copy, "new", 3) == 3 && fsync(copy) == 0, "copy");
        unlink(name.c_str());
    }
    return 0;
}
