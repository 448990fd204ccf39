/* Does things to its own process, or around its pool, that few programs do. The second argument says which. */
#define _GNU_SOURCE
#include "pool.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <spawn.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;

/* Allows everything, everything but one call, or nothing but a few calls, in the way that is asked for. */
static void restrict_calls(const char *how)
{
	struct sock_filter all[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
	struct sock_filter few[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_filter most[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog allow = { 1, all }, program = { 5, few }, deny = { 4, most };
	REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	if (!strcmp(how, "asked"))
		/* Asks whether there are filters, as libseccomp does. */
		REQUIRE(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL) == -1);
	else if (!strcmp(how, "allowed"))
		REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &allow) == 0);
	else if (!strcmp(how, "killed")) {
		REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &deny) == 0);
		syscall(SYS_getppid);
	} else if (!strcmp(how, "prctl"))
		REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
	else if (!strcmp(how, "seccomp"))
		REQUIRE(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
	else
		REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
}

/* Locks all memory, which must not make the process large. */
static void lock_memory(void)
{
	char line[256];
	long resident_kib = 0;
	REQUIRE(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
	REQUIRE(syscall(SYS_mlockall, MCL_CURRENT) == 0);
	REQUIRE(mlockall(0) == -1 && mlockall(64) == -1);
	FILE *status = fopen("/proc/self/status", "r");
	REQUIRE(status != NULL);
	while (fgets(line, sizeof line, status))
		sscanf(line, "VmRSS: %ld", &resident_kib);
	fclose(status);
	REQUIRE(resident_kib > 0 && resident_kib < 256 * 1024);
}

/* Writes many files, and then one beside the pool. */
static void write_files(const char *pool, const char *folder, int count)
{
	char path[4096];
	for (int number = 0; number <= count; number++) {
		if (number < count)
			snprintf(path, sizeof path, "%s/%d", folder, number);
		else
			snprintf(path, sizeof path, "%s-journal", pool);
		int fd = open(path, O_CREAT | O_WRONLY, 0600);
		REQUIRE(fd >= 0 && write(fd, "x", 1) == 1);
		close(fd);
	}
}

/* Truncates a pool that is mapped no more by its path, and keeps the lock that it has on the file. */
static void truncate_locked(const char *path, char *pool)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int status, fd = open(path, O_RDWR);
	REQUIRE(fd >= 0 && fcntl(fd, F_SETLK, &lock) == 0);
	REQUIRE(munmap(pool, 4096) == 0);
	REQUIRE(truncate(path, 8192) == 0);
	pid_t child = fork();
	if (child == 0) {
		REQUIRE(fcntl(fd, F_GETLK, &lock) == 0);
		_exit(lock.l_type != F_WRLCK);
	}
	REQUIRE(waitpid(child, &status, 0) == child && status == 0);
}

/* Starts a program whose standard output is the pool, and which maps another one. */
static void spawn_into(const char *path, char *program)
{
	char other[4096];
	char *arguments[] = { program, "into", other, NULL };
	posix_spawn_file_actions_t actions;
	int status, fd = open(path, O_RDWR | O_CLOEXEC);
	pid_t child;
	snprintf(other, sizeof other, "%s.other", path);
	REQUIRE(fd >= 0 && lseek(fd, 64, SEEK_SET) == 64);
	REQUIRE(posix_spawn_file_actions_init(&actions) == 0);
	REQUIRE(posix_spawn_file_actions_adddup2(&actions, fd, 1) == 0);
	REQUIRE(posix_spawn(&child, program, &actions, NULL, arguments, environ) == 0);
	REQUIRE(posix_spawn_file_actions_destroy(&actions) == 0);
	REQUIRE(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "into")) {
		store8(map_pool(argv[2], 4096), 1);
		return write(1, "hello", 5) != 5;
	}
	REQUIRE(argc > 2);
	const char *path = argv[1], *what = argv[2];
	char *pool = map_pool(path, 4096);
	store8(pool, 1);
	flush(pool);
	sfence();
	if (!strcmp(what, "restrict"))
		restrict_calls(argv[3]);
	else if (!strcmp(what, "lock"))
		lock_memory();
	else if (!strcmp(what, "files"))
		write_files(path, argv[3], atoi(argv[4]));
	else if (!strcmp(what, "truncate"))
		truncate_locked(path, pool);
	else if (!strcmp(what, "spawn"))
		spawn_into(path, argv[3]);
	return 0;
}
