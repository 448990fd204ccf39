// A new file is written through a mapping with msync(MS_ASYNC), which makes nothing durable, and renamed.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

#include <sys/mman.h>

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
    int file = open_file("settings.tmp", O_CREAT | O_TRUNC | O_RDWR);
    check(ftruncate(file, 11) == 0, "ftruncate");
    char *text = mmap(NULL, 11, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    check(text != MAP_FAILED, "mmap");
    memcpy(text, "colour=red\n", 11); // lost: PF0901
    check(msync(text, 11, MS_ASYNC) == 0, "msync");
    munmap(text, 11);
    close(file);
    check(rename(in_dir("settings.tmp"), in_dir("settings")) == 0, "rename");
    create_synced("done", "done", 4);
    return 0;
}
