// A record is mapped, and the entry that makes it valid is written to another file. msync gets the range behind the record: that is one
// bug, not two of which one says that the msync is useless.
// powerfail: workload = "{bin} run {dir}"
// powerfail: recover = "{bin} check {dir}"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, LEN = 512, RECORDS = 3 };

static int check(int records, int entries) {
    char content[2 * PAGE];
    if (read(records, content, sizeof content) != sizeof content) return 0;
    uint64_t valid[RECORDS] = {0};
    ssize_t len = read(entries, valid, sizeof valid);
    for (ssize_t entry = 0; entry < len / 8 && valid[entry] != 0; entry++)
        for (int byte = 0; byte < LEN; byte++)
            if (content[PAGE + entry * LEN + byte] != (char)valid[entry]) return 1;
    return 0;
}

int main(int argc, char **argv) {
    (void)argc;
    if (chdir(argv[2]) != 0) return 2;
    int records = open("records", O_RDWR | O_CREAT, 0644);
    int entries = open("entries", O_RDWR | O_CREAT, 0644);
    if (strcmp(argv[1], "check") == 0) return check(records, entries);
    if (ftruncate(records, 3 * PAGE) != 0 || fsync(records) != 0 || fsync(entries) != 0) return 2;
    int directory = open(".", O_RDONLY);
    if (fsync(directory) != 0) return 2;
    char *mapped = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, records, 0);
    for (int entry = 0; entry < RECORDS; entry++) {
        uint64_t letter = 'a' + entry;
        memset(mapped + PAGE + entry * LEN, (int)letter, LEN); // lost: PF0908
        msync(mapped + 2 * PAGE, PAGE, MS_SYNC);
        pwrite(entries, &letter, sizeof letter, entry * (off_t)sizeof letter);
        fdatasync(entries);
    }
    return 0;
}
