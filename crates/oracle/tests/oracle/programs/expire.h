/* Expires the timeout of the running command: for programs that hang on purpose. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static inline void expire(void) {
    const char *path = getenv("EXPIRE");
    int fifo = path ? open(path, O_WRONLY) : -1;
    if (fifo < 0) return;
    if (write(fifo, "", 1) < 0) _exit(99);
    close(fifo);
}
