// A file is made, and then rewritten in place, by the same line.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include <fstream>
#include <string>

#include "../../programs/files.h"

static void save(const std::string &path, int number) {
    std::ofstream out(path); // expect: PF0905
    out << "state " << number << " end\n";
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
