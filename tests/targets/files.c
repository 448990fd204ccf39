// Makes each system call that changes files once in each way, in the directory that is its argument. Some calls are made
// by functions, some by the C library on its own, some by an instruction of this program. With "unmapped", it maps no file; with
// "alone", it starts no programs.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(call)                                                                        \
    do {                                                                                   \
        if ((long)(call) < 0) {                                                            \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #call, strerror(errno));        \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

// The same, of a call that an emulator need not have.
#define CHECK_IF_THERE(call)                                                               \
    do {                                                                                   \
        if ((long)(call) < 0 && errno != ENOSYS && errno != EOPNOTSUPP) {                  \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #call, strerror(errno));        \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

// A system call by an instruction of this program.
static long inline_call(long number, long a, long b, long c, long d, long e)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    if (result < 0) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

static char block[4096];

static void fill(char letter) { memset(block, letter, sizeof block); }

static void writes(void)
{
    int fd = open("writes", O_RDWR | O_CREAT, 0644);
    CHECK(fd);
    CHECK(write(fd, "first ", 6));
    CHECK(write(fd, "second ", 7));
    CHECK(pwrite(fd, "SEC", 3, 6));
    struct iovec parts[2] = {{"one ", 4}, {"two ", 4}};
    CHECK(writev(fd, parts, 2));
    CHECK(pwritev(fd, parts, 2, 100));
    CHECK_IF_THERE(pwritev2(fd, parts, 2, 200, RWF_DSYNC));
    CHECK(pwritev2(fd, parts, 2, -1, 0));
    CHECK_IF_THERE(pwritev2(fd, parts, 2, 0, RWF_APPEND));
    CHECK_IF_THERE(pwritev2(fd, parts, 2, -1, RWF_SYNC));
    CHECK(syscall(SYS_write, fd, "by number ", 10));
    CHECK(inline_call(SYS_write, fd, (long)"inline ", 7, 0, 0));
    CHECK(inline_call(SYS_pwrite64, fd, (long)"inline ", 7, 300, 0));
    fill('a');
    CHECK(pwrite(fd, block, sizeof block, 10000));
    CHECK(lseek(fd, 50, SEEK_SET));
    CHECK(write(fd, "sought", 6));
    int copy = dup(fd);
    CHECK(copy);
    CHECK(write(copy, "copied", 6));
    CHECK(dup2(copy, 77));
    CHECK(write(77, "moved", 5));
    CHECK(fcntl(77, F_DUPFD, 80));
    CHECK(write(80, "again", 5));
    CHECK(dup3(fd, 81, O_CLOEXEC));
    CHECK(write(81, "dup3", 4));
    CHECK(close(81));
    CHECK(fdatasync(fd));
    CHECK(close(80));
    CHECK(close(77));
    CHECK(close(copy));
    CHECK(close(fd));

    fd = open("appended", O_WRONLY | O_CREAT | O_APPEND, 0600);
    CHECK(fd);
    CHECK(write(fd, "a line\n", 7));
    CHECK(pwrite(fd, "appended all the same\n", 22, 0));
    CHECK(fcntl(fd, F_SETFL, 0));
    CHECK(pwrite(fd, "A", 1, 0));
    CHECK(fcntl(fd, F_SETFL, O_APPEND));
    CHECK(write(fd, "the end\n", 8));
    CHECK(close(fd));

    fd = open("synced", O_WRONLY | O_CREAT | O_SYNC, 0644);
    CHECK(fd);
    CHECK(write(fd, "durable at once", 15));
    CHECK(close(fd));
    fd = open("synced", O_WRONLY | O_DSYNC | O_APPEND);
    CHECK(fd);
    CHECK(write(fd, " and this", 9));
    CHECK(close(fd));

    // The file system may not have it.
    fd = open("direct", O_RDWR | O_CREAT | O_DIRECT, 0644);
    if (fd >= 0) {
        void *aligned = NULL;
        if (posix_memalign(&aligned, 4096, 8192) == 0) {
            memset(aligned, 'd', 8192);
            (void)!pwrite(fd, aligned, 8192, 4096);
        }
        CHECK(close(fd));
    }

    // Longer than one record.
    size_t len = 200 * 1000 + 7;
    char *large = malloc(len);
    for (size_t i = 0; i < len; i++)
        large[i] = (char)(i * 31 >> 3);
    fd = creat("large", 0644);
    CHECK(fd);
    CHECK(write(fd, large, len));
    CHECK(pwrite(fd, large + 1, len - 1, 100 * 1000));
    CHECK(close(fd));
    free(large);
}

static void lengths(void)
{
    int fd = open("lengths", O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd);
    fill('b');
    for (int i = 0; i < 8; i++)
        CHECK(write(fd, block, sizeof block));
    CHECK(ftruncate(fd, 30000));
    CHECK(ftruncate(fd, 40000));
    CHECK(truncate("lengths", 35000));
    CHECK(posix_fallocate(fd, 0, 50000));
    CHECK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 50000, 50000));
    CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5000, 6000));
    // File systems need not have these.
    (void)!fallocate(fd, FALLOC_FL_ZERO_RANGE, 12000, 100);
    (void)!fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 49000, 9000);
    (void)!fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 4096, 4096);
    (void)!fallocate(fd, FALLOC_FL_INSERT_RANGE, 8192, 8192);
    CHECK(fsync(fd));
    CHECK(close(fd));
    fd = open("lengths", O_WRONLY | O_TRUNC);
    CHECK(fd);
    CHECK(write(fd, "short", 5));
    CHECK(close(fd));
    fd = open("lengths", O_RDWR | O_CREAT, 0644);
    CHECK(fd);
    CHECK(close(fd));
}

static void names(void)
{
    CHECK(mkdir("folder", 0755));
    int folder = open("folder", O_RDONLY | O_DIRECTORY);
    CHECK(folder);
    CHECK(mkdirat(folder, "inner/", 0700));
    int fd = openat(folder, "inner/file", O_WRONLY | O_CREAT | O_EXCL, 0644);
    CHECK(fd);
    CHECK(write(fd, "inner file", 10));
    CHECK(fsync(fd));
    CHECK(close(fd));
    CHECK(rename("folder/inner/file", "folder/renamed"));
    CHECK(renameat(folder, "renamed", AT_FDCWD, "top"));
    CHECK(link("top", "second"));
    CHECK(linkat(AT_FDCWD, "top", folder, "third", 0));
    CHECK(rename("top", "second"));
    CHECK(symlink("../somewhere", "link"));
    CHECK(symlinkat("third", folder, "near"));
    fd = open("folder/near", O_WRONLY | O_APPEND);
    CHECK(fd);
    CHECK(write(fd, " by its link", 12));
    CHECK(close(fd));
    CHECK(renameat2(AT_FDCWD, "second", folder, "third", RENAME_EXCHANGE));
    CHECK(renameat2(AT_FDCWD, "link", folder, "moved link", RENAME_NOREPLACE));
    if (renameat2(AT_FDCWD, "second", folder, "third", RENAME_NOREPLACE) == 0)
        exit(2);
    CHECK(mkfifo("pipe", 0600));
    CHECK(mknod("pipe 2", S_IFIFO | 0600, 0));
    CHECK(unlink("pipe"));
    CHECK(mkdir("empty", 0755));
    CHECK(rename("empty", "folder/empty"));
    CHECK(rmdir("folder/empty"));
    CHECK(unlinkat(folder, "inner", AT_REMOVEDIR));
    CHECK(inline_call(SYS_mkdir, (long)"inline", 0755, 0, 0, 0));
    CHECK(inline_call(SYS_renameat2, AT_FDCWD, (long)"inline", AT_FDCWD, (long)"inline 2", 0));
    CHECK(fsync(folder));
    CHECK(fdatasync(folder));
    CHECK(syncfs(folder));
    sync();

    // Elsewhere, and back.
    CHECK(chdir("folder"));
    fd = open("in the folder", O_WRONLY | O_CREAT, 0644);
    CHECK(fd);
    CHECK(write(fd, "x", 1));
    CHECK(fchdir(folder));
    CHECK(rename("./in the folder", "../inline 2/./../in the folder"));
    CHECK(write(fd, "y", 1));
    CHECK(close(fd));
    CHECK(chdir(".."));
    CHECK(close(folder));

    struct open_how how = {.flags = O_CREAT | O_WRONLY, .mode = 0600};
    fd = (int)syscall(SYS_openat2, AT_FDCWD, "openat2", &how, sizeof how);
    CHECK_IF_THERE(fd);
    if (fd >= 0) {
        CHECK(write(fd, "x", 1));
        CHECK(close(fd));
    }
    folder = open("folder", O_PATH | O_DIRECTORY);
    CHECK(folder);
    fd = openat(folder, "by its path", O_CREAT | O_WRONLY, 0644);
    CHECK(fd);
    CHECK(write(fd, "y", 1));
    CHECK(close(fd));
    CHECK(close(folder));

    // Without a name at first.
    fd = open(".", O_TMPFILE | O_RDWR, 0644);
    if (fd >= 0) {
        CHECK(write(fd, "temporary", 9));
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        CHECK(linkat(AT_FDCWD, path, AT_FDCWD, "kept", AT_SYMLINK_FOLLOW));
        CHECK(write(fd, ", kept", 6));
        CHECK(close(fd));
        fd = open(".", O_TMPFILE | O_RDWR, 0644);
        CHECK(fd);
        CHECK(write(fd, "by its descriptor", 17));
        // Only root may.
        (void)!linkat(fd, "", AT_FDCWD, "kept, too", AT_EMPTY_PATH);
        CHECK(write(fd, ", kept", 6));
        CHECK(close(fd));
    }

    // Removed while it is open, and its inode used again.
    for (int i = 0; i < 3; i++) {
        fd = open("short-lived", O_RDWR | O_CREAT, 0644);
        CHECK(fd);
        CHECK(write(fd, "gone", 4));
        CHECK(unlink("short-lived"));
        CHECK(write(fd, "really", 6));
        CHECK(close(fd));
    }
}

static void transfers(void)
{
    int from = open("large", O_RDONLY);
    int to = open("transferred", O_RDWR | O_CREAT, 0644);
    CHECK(from);
    CHECK(to);
    CHECK(copy_file_range(from, NULL, to, NULL, 50000, 0));
    loff_t out = 100000;
    CHECK(copy_file_range(from, NULL, to, &out, 3000, 0));
    CHECK(sendfile(to, from, NULL, 70000));
    int pipes[2];
    CHECK(pipe(pipes));
    CHECK(write(pipes[1], "through a pipe", 14));
    loff_t place = 123;
    CHECK(splice(pipes[0], NULL, to, &place, 14, 0));
    loff_t start = 1000;
    CHECK(splice(from, &start, pipes[1], NULL, 500, 0));
    CHECK(splice(pipes[0], NULL, to, NULL, 500, 0));
    CHECK(close(pipes[0]));
    CHECK(close(pipes[1]));
    CHECK(close(from));
    CHECK(close(to));
}

static void stdio(void)
{
    FILE *file = fopen("stdio", "w");
    if (!file)
        exit(1);
    for (int i = 0; i < 3000; i++)
        fprintf(file, "line %d\n", i);
    CHECK(fflush(file));
    CHECK(fsync(fileno(file)));
    fputs("at the end\n", file);
    CHECK(fclose(file));
    file = fopen("stdio", "r+");
    fseek(file, 7, SEEK_SET);
    fputs("IN THE MIDDLE", file);
    fclose(file);
    file = fopen("stdio 2", "a");
    fputs("removed\n", file);
    fclose(file);
    CHECK(remove("stdio 2"));
    char name[] = "temporary-XXXXXX";
    int fd = mkstemp(name);
    CHECK(fd);
    CHECK(write(fd, "temporary", 9));
    CHECK(close(fd));
    CHECK(rename(name, "no longer temporary"));
}

static void mapped(void)
{
    int fd = open("mapped", O_RDWR | O_CREAT, 0644);
    CHECK(fd);
    CHECK(write(fd, "before", 6));
    CHECK(ftruncate(fd, 8192));
    char *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        exit(1);
    memcpy(memory + 100, "by a store", 10);
    CHECK(msync(memory, 8192, MS_SYNC));
    CHECK(pwrite(fd, "by a call", 9, 5000));
    CHECK(ftruncate(fd, 12000));
    memory[10] = 'x';
    CHECK(fsync(fd));
    CHECK(munmap(memory, 8192));
    CHECK(pwrite(fd, "afterwards", 10, 11000));
    CHECK(close(fd));
}

static void *appends(void *argument)
{
    int fd = open("shared log", O_WRONLY | O_APPEND | O_CREAT, 0644);
    CHECK(fd);
    for (int i = 0; i < 200; i++) {
        char line[64];
        int len = snprintf(line, sizeof line, "%s %d\n", (const char *)argument, i);
        CHECK(write(fd, line, (size_t)len));
    }
    CHECK(close(fd));
    return NULL;
}

// The position of this descriptor is shared by threads and processes.
static int position;

static void *continues(void *argument)
{
    for (int i = 0; i < 100; i++)
        CHECK(write(position, argument, 9));
    return NULL;
}

static void together(void)
{
    position = open("shared position", O_WRONLY | O_CREAT, 0644);
    CHECK(position);
    pthread_t threads[4];
    pthread_create(&threads[0], NULL, appends, "one");
    pthread_create(&threads[1], NULL, appends, "two");
    pthread_create(&threads[2], NULL, continues, "thread 1\n");
    pthread_create(&threads[3], NULL, continues, "thread 2\n");
    pid_t child = fork();
    CHECK(child);
    if (child == 0) {
        appends("child");
        continues("a child.\n");
        _exit(0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    int status = 0;
    CHECK(waitpid(child, &status, 0));
    if (status != 0)
        exit(3);
    CHECK(close(position));
}

static void programs(void)
{
    // Another program inherits a descriptor.
    int status = 0;
    int fd = open("inherited", O_WRONLY | O_CREAT, 0644);
    CHECK(fd);
    CHECK(write(fd, "parent\n", 7));
    pid_t child = fork();
    CHECK(child);
    if (child == 0) {
        CHECK(dup2(fd, 1));
        execlp("echo", "echo", "from another program", NULL);
        _exit(4);
    }
    CHECK(waitpid(child, &status, 0));
    child = vfork();
    CHECK(child);
    if (child == 0) {
        execlp("touch", "touch", "made after vfork", NULL);
        _exit(4);
    }
    CHECK(waitpid(child, &status, 0));
    CHECK(write(fd, "parent again\n", 13));
    CHECK(close(fd));
    CHECK(system("mkdir made-by-shell; echo hello > made-by-shell/file; echo more >> made-by-shell/file"));
}

int main(int count, char **arguments)
{
    CHECK(chdir(arguments[1]));
    writes();
    lengths();
    names();
    transfers();
    stdio();
    if (count < 3 || strcmp(arguments[2], "unmapped") != 0)
        mapped();
    together();
    if (count < 3 || strcmp(arguments[2], "alone") != 0)
        programs();
    puts("done");
    return 0;
}
