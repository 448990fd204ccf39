// A stream is flushed to the kernel and not to the disk before its file is linked under its name.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include <fstream>
#include <iterator>
#include <string>

#include "../../programs/files.h"

static void publish(const std::string &text) {
    const std::string draft = in_dir("draft");
    {
        std::ofstream stream(draft);
        stream << text;
        stream.flush(); // lost: PF0901
    }
    check(link(draft.c_str(), in_dir("article")) == 0, "link");
    check(unlink(draft.c_str()) == 0, "unlink");
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        std::ifstream stream(in_dir("article"));
        if (stream) {
            std::string text((std::istreambuf_iterator<char>(stream)), {});
            check(text == "all of the text\n", "the article");
        }
        return 0;
    }
    publish("all of the text\n");
    return 0;
}
