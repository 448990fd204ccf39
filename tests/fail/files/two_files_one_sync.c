// Of two files that belong together only the second one is synced.
// powerfail: workload = "{bin} {dir}"
// powerfail: recover = "{bin} {dir} recover"

#include "../../programs/files.h"

static int recover(void) {
    char keys[64] = {0}, values[64] = {0};
    ssize_t count = read_file("keys", keys, sizeof keys - 1);
    ssize_t room = read_file("values", values, sizeof values - 1);
    for (ssize_t number = 0; number < room && values[number] != 0; number++) {
        check(number < count && keys[number] == values[number] - 32, "a value without its key");
    }
    return 0;
}

int main(int argc, char **argv) {
    files_dir = argv[1];
    if (argc > 2) {
        return recover();
    }
    create_synced("keys", "", 0);
    create_synced("values", "", 0);
    int keys = open_file("keys", O_WRONLY), values = open_file("values", O_WRONLY);
    for (int number = 0; number < 2; number++) {
        char key = (char)('A' + number), value = (char)('a' + number);
        check(pwrite(keys, &key, 1, number) == 1, "write"); // lost: PF0908
        check(pwrite(values, &value, 1, number) == 1, "write");
        check(fdatasync(values) == 0, "fdatasync");
    }
    return 0;
}
