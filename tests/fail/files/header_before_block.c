// A header points to a block that may be written after it.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

int main(int argc, char **argv) {
    files_dir = argv[1];
    static char image[3 * 4096];
    if (argc > 2) {
        if (read_file("store", image, sizeof image) < (ssize_t)sizeof image) {
            return 0;
        }
        int block = image[0] - '0';
        check(block == 0 || !strcmp(image + 4096 * block, "content"), "the block of the header");
        return 0;
    }
    image[0] = '0';
    create_synced("store", image, sizeof image);
    int store = open_file("store", O_WRONLY);
    check(pwrite(store, "content", 8, 8192) == 8, "write"); // lost: PF0908
    check(pwrite(store, "2", 1, 0) == 1, "write");
    check(fsync(store) == 0, "fsync");
    close(store);
    return 0;
}
