/* Children of all kinds, and all ways to end. The first argument selects one. */
#define _GNU_SOURCE
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include "pool.h"

extern char **environ;

static char *pool;
static const char *self, *path;

static void wait_for(pid_t child, int expected)
{
	int status;
	REQUIRE(child > 0);
	REQUIRE(waitpid(child, &status, 0) == child);
	REQUIRE(status == expected);
}

/* Parent and children store alternately, to the same and to other locations. */
static void fork_children(void)
{
	for (uint64_t at = 0; at < 4; at++) {
		store8(pool, 10 * at + 1);
		pid_t child = fork();
		if (child == 0) {
			store8(pool, 10 * at + 2);
			__atomic_fetch_add((uint64_t *)(pool + 8), 1, __ATOMIC_SEQ_CST);
			store8(pool + 64 * (at + 1), at + 100);
			flush(pool);
			sfence();
			exit(0);
		}
		wait_for(child, 0);
		store8(pool, 10 * at + 3);
	}
	REQUIRE(*(uint64_t *)(pool + 8) == 4);
}

/* Children that store at the same time as each other and the parent. */
static void fork_at_once(void)
{
	pid_t children[4];
	for (int at = 0; at < 4; at++) {
		children[at] = fork();
		if (children[at] == 0) {
			for (uint64_t round = 0; round < 500; round++) {
				__atomic_fetch_add((uint64_t *)pool, 1, __ATOMIC_SEQ_CST);
				store8(pool + 64 * (at + 1), round + 1);
			}
			_exit(0);
		}
	}
	for (uint64_t round = 0; round < 500; round++)
		__atomic_fetch_add((uint64_t *)pool, 1, __ATOMIC_SEQ_CST);
	for (int at = 0; at < 4; at++)
		wait_for(children[at], 0);
	REQUIRE(*(uint64_t *)pool == 2500);
}

/* The next child overwrites the last store of a child. */
static void last_stores(void)
{
	for (uint64_t at = 0; at < 20; at++) {
		pid_t child = fork();
		if (child == 0) {
			__atomic_fetch_add((uint64_t *)pool, 1, __ATOMIC_SEQ_CST);
			exit(0);
		}
		wait_for(child, 0);
		store8(pool + 64, at);
	}
}

static void fork_many(void)
{
	for (uint64_t at = 0; at < 100; at++) {
		pid_t child = fork();
		if (child == 0) {
			store8(pool + 8 * at, at + 1);
			_exit(0);
		}
		wait_for(child, 0);
	}
}

static void grandchildren(void)
{
	store8(pool, 1);
	pid_t child = fork();
	if (child == 0) {
		store8(pool + 8, 2);
		pid_t grandchild = fork();
		if (grandchild == 0) {
			store8(pool + 16, 3);
			_exit(0);
		}
		wait_for(grandchild, 0);
		store8(pool + 24, 4);
		_exit(0);
	}
	wait_for(child, 0);
	store8(pool + 32, 5);
}

/* This program again, on the same pool, started in every possible way. */
static void leaf(void)
{
	store8(pool, *(uint64_t *)pool + 1);
	flush(pool);
	sfence();
}

static void fork_exec(void)
{
	store8(pool + 64, 1);
	pid_t child = fork();
	if (child == 0) {
		store8(pool + 128, 1);
		execl(self, self, "leaf", path, NULL);
		_exit(97);
	}
	wait_for(child, 0);
	REQUIRE(*(volatile uint64_t *)pool == 1);
	store8(pool + 64, 2);
}

static void vfork_exec(void)
{
	store8(pool + 64, 1);
	pid_t child = vfork();
	if (child == 0) {
		execl(self, self, "leaf", path, NULL);
		_exit(97);
	}
	wait_for(child, 0);
	REQUIRE(*(volatile uint64_t *)pool == 1);
	store8(pool + 64, 2);
}

static void spawn(void)
{
	char *arguments[] = {(char *)self, "leaf", (char *)path, NULL};
	store8(pool + 64, 1);
	for (int round = 0; round < 3; round++) {
		pid_t child;
		REQUIRE(posix_spawn(&child, self, NULL, NULL, arguments, environ) == 0);
		wait_for(child, 0);
	}
	REQUIRE(*(volatile uint64_t *)pool == 3);
	store8(pool + 64, 2);
}

static void shell(void)
{
	char command[4096];
	store8(pool + 64, 1);
	snprintf(command, sizeof(command), "%s leaf %s && %s leaf %s", self, path, self, path);
	REQUIRE(system(command) == 0);
	REQUIRE(*(volatile uint64_t *)pool == 2);
	store8(pool + 64, 2);
	FILE *reader = popen("echo from the shell", "r");
	REQUIRE(reader != NULL);
	REQUIRE(fgets(pool + 256, 64, reader) != NULL);
	REQUIRE(pclose(reader) == 0);
	REQUIRE(strcmp(pool + 256, "from the shell\n") == 0);
}

static void exec_self(void)
{
	store8(pool + 64, 1);
	execl(self, self, "leaf", path, NULL);
	_exit(97);
}

/* All ways to end. */
static void end_by_exit(void)
{
	store8(pool, 1);
	exit(3);
}

static void end_by_fast_exit(void)
{
	store8(pool, 1);
	_exit(4);
}

static void end_by_abort(void)
{
	store8(pool, 1);
	abort();
}

static void store_at_exit(void)
{
	store8(pool + 8, 2);
}

static void end_with_handlers(void)
{
	REQUIRE(atexit(store_at_exit) == 0);
	store8(pool, 1);
}

static void end_by_kill(void)
{
	store8(pool, 1);
	kill(getpid(), SIGKILL);
	pause();
}

/* The child stores endlessly, and is killed in the middle of it. */
static void kill_child(void)
{
	for (uint64_t round = 0; round < 10; round++) {
		store8(pool, 0);
		pid_t child = fork();
		if (child == 0) {
			for (uint64_t value = 1;; value++) {
				store8(pool, value);
				store8(pool + 8, value);
				memset(pool + 4096, (int)value, 256);
				__atomic_fetch_add((uint64_t *)(pool + 64), 1, __ATOMIC_SEQ_CST);
			}
		}
		while (*(volatile uint64_t *)pool < 100 * round + 1)
			;
		REQUIRE(kill(child, SIGKILL) == 0);
		wait_for(child, SIGKILL);
		REQUIRE(*(volatile uint64_t *)pool - *(volatile uint64_t *)(pool + 8) <= 1);
	}
	store8(pool + 128, 1);
}

/* It kills itself from a timer, in the middle of stores. */
static void on_alarm(int number)
{
	(void)number;
	kill(getpid(), SIGKILL);
}

static void kill_in_store(void)
{
	signal(SIGALRM, on_alarm);
	ualarm(1000, 0);
	for (uint64_t value = 1;; value++) {
		store8(pool, value);
		memset(pool + 4096, (int)value, 999);
		flush(pool);
		sfence();
	}
}

/* Runs until it is killed. */
static void waiting(void)
{
	store8(pool, 1);
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}

/* A child runs until it is killed, and so does its parent. */
static void waiting_child(void)
{
	if (fork() == 0)
		waiting();
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} all[] = {
		{"waiting", waiting},		  {"waiting_child", waiting_child},
		{"fork_children", fork_children}, {"fork_at_once", fork_at_once},
		{"fork_many", fork_many},	  {"grandchildren", grandchildren},
		{"last_stores", last_stores},
		{"leaf", leaf},			  {"fork_exec", fork_exec},
		{"vfork_exec", vfork_exec},	  {"spawn", spawn},
		{"shell", shell},		  {"exec_self", exec_self},
		{"exit", end_by_exit},		  {"fast_exit", end_by_fast_exit},
		{"abort", end_by_abort},	  {"at_exit", end_with_handlers},
		{"kill", end_by_kill},		  {"kill_child", kill_child},
		{"kill_in_store", kill_in_store},
	};
	REQUIRE(argc == 3);
	self = argv[0], path = argv[2];
	pool = map_pool(path, MIB);
	for (size_t at = 0; at < sizeof(all) / sizeof(*all); at++) {
		if (strcmp(argv[1], all[at].name) == 0) {
			all[at].run();
			return 0;
		}
	}
	return 98;
}
