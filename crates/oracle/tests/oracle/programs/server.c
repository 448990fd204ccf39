/* server HOW ADDRESS POOL: answers each connection with the content of its pool, until SIGTERM or a
   connection that says "stop". client HOW ADDRESS [stop] prints the answer. */
#include "expire.h"
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void on_term(int signal) {
    (void)signal;
    const char *status = getenv("STATUS_AT_END");
    _exit(status ? atoi(status) : 0);
}

static void ignore_term(int signal) {
    (void)signal;
    expire();
}

static int address_of(const char *how, const char *text, struct sockaddr_storage *out) {
    memset(out, 0, sizeof *out);
    if (!strcmp(how, "tcp")) {
        struct sockaddr_in *in = (void *)out;
        in->sin_family = AF_INET;
        in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        in->sin_port = htons(atoi(text));
        return sizeof *in;
    }
    struct sockaddr_un *un = (void *)out;
    un->sun_family = AF_UNIX;
    strncpy(un->sun_path, text, sizeof un->sun_path - 1);
    return sizeof *un;
}

int main(int argc, char **argv) {
    struct sockaddr_storage address;
    char buffer[4096];
    int is_client = !strcmp(argv[1], "client");
    int length = address_of(argv[2], argv[3], &address);
    int fd = socket(address.ss_family, SOCK_STREAM, 0);
    if (is_client) {
        if (connect(fd, (void *)&address, length))
            return 10;
        if (write(fd, argc > 4 ? argv[4] : "read", 4) != 4)
            return 11;
        ssize_t got = read(fd, buffer, sizeof buffer);
        if (got <= 0)
            return 12;
        fwrite(buffer, 1, got, stdout);
        return memcmp(buffer, "good", 4) ? 13 : 0;
    }
    signal(SIGTERM, getenv("IGNORE_TERM") ? ignore_term : on_term);
    int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (address.ss_family == AF_UNIX)
        unlink(argv[3]);
    if (bind(fd, (void *)&address, length) || listen(fd, 16))
        return 20;
    printf("starting\nserver is ready at last\n");
    fflush(stdout);
    if (getenv("NEVER_READY"))
        expire();
    for (;;) {
        int peer = accept(fd, 0, 0);
        ssize_t got = read(peer, buffer, 4);
        if (got == 4) {
            if (getenv("CRASH_ON_REQUEST"))
                abort();
            if (getenv("HANG_ON_REQUEST")) {
                expire();
                for (;;)
                    pause();
            }
            FILE *pool = fopen(argv[4], "r");
            int stop = !memcmp(buffer, "stop", 4);
            size_t size = pool ? fread(buffer, 1, sizeof buffer, pool) : 0;
            if (write(peer, buffer, size) < 0)
                return 21;
            if (pool)
                fclose(pool);
            if (stop)
                return 0;
        }
        close(peer);
    }
}
