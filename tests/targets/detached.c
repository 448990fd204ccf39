/* Processes that lose what they have inherited, and programs that they start. The first argument says which, the second
 * is the pool. "store PLACE" is what the started programs do. */
#define _GNU_SOURCE
#include <errno.h>
#include <pty.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "pool.h"

extern char **environ;

static const char *self, *path;

/* Stores to a word of the pool that is not mapped yet. */
static void store_at(uint64_t place)
{
	char *pool = map_pool(path, MIB);
	store8(pool + 64 * place, place + 100);
	flush(pool + 64 * place);
	sfence();
}

static void wait_for(pid_t child)
{
	int status;
	REQUIRE(child > 0);
	REQUIRE(waitpid(child, &status, 0) == child);
	REQUIRE(status == 0);
}

static void close_each(void)
{
	for (int fd = 3; fd < 1024; fd++)
		close(fd);
}

static void close_each_raw(void)
{
	for (long fd = 3; fd < 1024; fd++) {
		long result;
		__asm__ volatile("syscall" : "=a"(result) : "a"(SYS_close), "D"(fd) : "rcx", "r11", "memory");
	}
}

/* Closes everything before the first pool, between two pools, and before a fork. */
static void closed(void (*close_all)(void))
{
	close_all();
	store_at(1);
	close_all();
	store_at(2);
	close_all();
	pid_t child = fork();
	if (child == 0) {
		close_all();
		store_at(3);
		exit(0);
	}
	wait_for(child);
	store_at(4);
}

static void close_by_range(void) { REQUIRE(close_range(3, ~0U, 0) == 0); }
static void close_by_syscall(void) { REQUIRE(syscall(SYS_close_range, 3, ~0U, 0) == 0); }
static void close_from(void) { closefrom(3); }

/* Uses the numbers of all descriptors for files of its own. */
static void replace_each(void)
{
	int null = open("/dev/null", O_RDWR);
	REQUIRE(null >= 0);
	for (int fd = 900; fd < 1024; fd++)
		REQUIRE(dup2(null, fd) == fd);
}

static void become(char *const environment[])
{
	char *const arguments[] = {(char *)self, "store", (char *)path, "1", NULL};
	execve(self, arguments, environment);
	exit(98);
}

static char *const empty[] = {NULL};

static void become_with_list(void)
{
	clearenv();
	/* More arguments than registers. */
	execl(self, self, "store", path, "1", "2", "3", "4", NULL);
	exit(98);
}

static void spawn(int closes)
{
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	if (closes)
		REQUIRE(posix_spawn_file_actions_addclosefrom_np(&actions, 3) == 0);
	char *const arguments[] = {(char *)self, "store", (char *)path, "1", NULL};
	pid_t child;
	REQUIRE(posix_spawn(&child, self, &actions, NULL, arguments, empty) == 0);
	wait_for(child);
	posix_spawn_file_actions_destroy(&actions);
}

static void in_shell(void)
{
	char command[4096];
	clearenv();
	snprintf(command, sizeof command, "%s store %s 1", self, path);
	REQUIRE(system(command) == 0);
}

/* The second child has no parent any more when it stores. */
static void fork_twice(void)
{
	int gone[2];
	REQUIRE(pipe(gone) == 0);
	pid_t child = fork();
	if (child == 0) {
		if (fork() == 0) {
			char byte;
			close(gone[1]);
			REQUIRE(setsid() > 0);
			REQUIRE(read(gone[0], &byte, 1) == 0);
			close_each();
			store_at(1);
			exit(0);
		}
		exit(0);
	}
	wait_for(child);
}

static void as_daemon(void)
{
	store_at(2);
	REQUIRE(daemon(1, 0) == 0);
	store_at(1);
}

static void in_terminal(void)
{
	int leader;
	pid_t child = forkpty(&leader, NULL, NULL, NULL);
	if (child == 0) {
		store_at(1);
		exit(0);
	}
	wait_for(child);
}

/* A program that does not exist is not a program that was not recorded. */
static void fail_to_execute(void)
{
	char *const arguments[] = {"none", NULL};
	REQUIRE(execve("/no/such/program", arguments, empty) == -1 && errno == ENOENT);
	REQUIRE(execvp("no-such-program", arguments) == -1 && errno == ENOENT);
	pid_t child;
	REQUIRE(posix_spawn(&child, "/no/such/program", NULL, NULL, arguments, empty) == ENOENT);
	store_at(1);
}

int main(int argc, char **argv)
{
	REQUIRE(argc >= 3);
	const char *what = argv[1];
	self = argv[0];
	path = argv[2];
#define IS(name) (strcmp(what, name) == 0)
	if (IS("store")) {
		for (int at = 3; at < argc; at++)
			store_at(strtoul(argv[at], NULL, 10));
	} else if (IS("close")) {
		closed(close_each);
	} else if (IS("close_range")) {
		closed(close_by_range);
	} else if (IS("close_range_syscall")) {
		closed(close_by_syscall);
	} else if (IS("closefrom")) {
		closed(close_from);
	} else if (IS("close_raw")) {
		closed(close_each_raw);
	} else if (IS("dup2")) {
		closed(replace_each);
	} else if (IS("execve")) {
		become(empty);
	} else if (IS("close_execve")) {
		close_each_raw();
		become(empty);
	} else if (IS("execl")) {
		become_with_list();
	} else if (IS("execle")) {
		execle(self, self, "store", path, "1", NULL, empty);
	} else if (IS("execlp")) {
		clearenv();
		execlp(self, self, "store", path, "1", NULL);
	} else if (IS("raw_execve")) {
		char *const arguments[] = {(char *)self, "store", (char *)path, "1", NULL};
		syscall(SYS_execve, self, arguments, empty);
	} else if (IS("vfork")) {
		pid_t child = vfork();
		if (child == 0) {
			close_range(3, ~0U, 0);
			become(empty);
		}
		wait_for(child);
		store_at(2);
	} else if (IS("posix_spawn")) {
		spawn(0);
	} else if (IS("posix_spawn_closing")) {
		spawn(1);
	} else if (IS("system")) {
		in_shell();
	} else if (IS("fork_twice")) {
		fork_twice();
	} else if (IS("daemon")) {
		as_daemon();
	} else if (IS("forkpty")) {
		in_terminal();
	} else if (IS("no_program")) {
		fail_to_execute();
	} else if (IS("run")) {
		/* run POOL PROGRAM ARGUMENTS */
		execv(argv[3], argv + 3);
		exit(98);
	} else {
		exit(97);
	}
	return 0;
}
