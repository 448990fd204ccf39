// std::filesystem copies a file, and the original is removed before the copy is durable.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

#include <filesystem>
#include <string>

namespace fs = std::filesystem;

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        char text[64] = {0};
        ssize_t len = read_file("old", text, sizeof text - 1);
        if (len <= 0) {
            len = read_file("new", text, sizeof text - 1);
        }
        check(len < 0 || std::string(text) == "the only copy", "both copies");
        return 0;
    }
    create_synced("old", "the only copy", 13);
    fs::path dir = files_dir;
    fs::copy_file(dir / "old", dir / "new"); // lost: PF0906
    fs::remove(dir / "old");
    return 0;
}
