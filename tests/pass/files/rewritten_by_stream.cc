// A file is made, and then replaced, by the same lines.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include <fstream>
#include <string>

#include "../../programs/files.h"

static void save(const std::string &path, int number) {
    std::ofstream(path + ".new") << "state " << number << " end\n";
    int file = open_file("state.new", O_RDONLY);
    check(fsync(file) == 0, "fsync");
    close(file);
    check(rename(in_dir("state.new"), in_dir("state")) == 0, "rename");
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    std::string path = in_dir("state");
    if (argc > 2) {
        std::ifstream in(path);
        std::string word, end;
        int number;
        check(!in || (in >> word >> number >> end && end == "end"), "state");
        return 0;
    }
    for (int number = 0; number < 3; number++) {
        save(path, number);
    }
    return 0;
}
