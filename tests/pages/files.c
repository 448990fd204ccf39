/*
 * The code of the pages about findings, docs/reference/findings, for ordinary files: each piece is a function of its own, named
 * after its page, and works in a directory of its own. A test writes the pieces to files, records this program once and
 * lints the trace.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wunused-result"

#define CASE static __attribute__((noinline)) void
#define wrong(code) CASE wrong_##code(void)
#define right(code) CASE right_##code(void)

static const char text[] = "the text";
static const size_t len = sizeof text;

static int begun(const char *name)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	write(fd, text, len);
	return fd;
}

/* A file that exists, and is durable. */
static void durable(const char *name)
{
	int fd = begun(name), dir = open(".", O_RDONLY | O_DIRECTORY);
	fsync(fd);
	fsync(dir);
	close(fd);
	close(dir);
}

wrong(PF0901)
{
	durable("config");
#include "PF0901-wrong.inc"
}
right(PF0901)
{
	durable("config");
#include "PF0901-right.inc"
}
wrong(PF0902)
{
	int fd = begun("data.tmp");
#include "PF0902-wrong.inc"
}
right(PF0902)
{
	int fd = begun("data.tmp");
#include "PF0902-right.inc"
}

static void reply(FILE *client, const char *answer)
{
	fputs(answer, client);
}
wrong(PF0903)
{
	FILE *client = stderr;
	const char *record = text;
	int log = begun("log");
#include "PF0903-wrong.inc"
}
right(PF0903)
{
	FILE *client = stderr;
	const char *record = text;
	int log = begun("log");
#include "PF0903-right.inc"
}

struct record {
	uint32_t checksum, len;
	uint64_t sequence;
	char data[48];
};
static uint64_t next;
static uint32_t crc32c(const void *bytes, size_t count)
{
	uint32_t sum = 0;
	for (size_t i = 0; i < count; i++)
		sum = sum * 31 + ((const unsigned char *)bytes)[i];
	return sum;
}
wrong(PF0904)
{
	const char *data = text;
	uint32_t n = len;
	int log = begun("log");
#include "PF0904-wrong.inc"
	fsync(log);
}
right(PF0904)
{
	struct record r = { .len = 3, .sequence = next++ };
	int log = begun("log");
#include "PF0904-right.inc"
	fsync(log);
}
wrong(PF0905)
{
	durable("config");
#include "PF0905-wrong.inc"
}
right(PF0905)
{
	durable("config");
#include "PF0905-right.inc"
}
wrong(PF0906)
{
	const char *data = text;
	durable("segment.1");
	int new_fd = open("segment.2", O_WRONLY | O_CREAT, 0644);
#include "PF0906-wrong.inc"
}
right(PF0906)
{
	const char *data = text;
	durable("segment.1");
	int new_fd = open("segment.2", O_WRONLY | O_CREAT, 0644), dir_fd = open(".", O_RDONLY | O_DIRECTORY);
#include "PF0906-right.inc"
}
/* The device would have to fail. */
wrong(PF0907)
{
	int fd = begun("data");
#include "PF0907-wrong.inc"
}
right(PF0907)
{
	int fd = begun("data");
#include "PF0907-right.inc"
}
wrong(PF0908)
{
	char page[64] = "page";
	uint64_t header = 1;
	off_t at = 4096;
	int db = begun("db");
#include "PF0908-wrong.inc"
}
right(PF0908)
{
	char page[64] = "page";
	uint64_t header = 1;
	off_t at = 4096;
	int db = begun("db");
#include "PF0908-right.inc"
}
wrong(PF0911)
{
	int fd = begun("data");
#include "PF0911-wrong.inc"
}
right(PF0911)
{
	int fd = begun("data");
#include "PF0911-right.inc"
}

/* These need a directory that everybody has: they are only compiled. */
static void copy(const char *from, const char *to)
{
	(void)from, (void)to;
}
void wrong_PF0921(char *name)
{
#include "PF0921-wrong.inc"
	close(fd);
}
void right_PF0921(char *name)
{
#include "PF0921-right.inc"
	close(fd);
}

int main(int argc, char **argv)
{
	static void (*const cases[])(void) = {
		wrong_PF0901, right_PF0901, wrong_PF0902, right_PF0902, wrong_PF0903, right_PF0903, wrong_PF0904,
		right_PF0904, wrong_PF0905, right_PF0905, wrong_PF0906, right_PF0906, wrong_PF0907, right_PF0907,
		wrong_PF0908, right_PF0908, wrong_PF0911, right_PF0911,
	};
	if (argc != 2 || chdir(argv[1]) != 0)
		return 1;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char name[16];
		snprintf(name, sizeof name, "case%zu", i);
		if (mkdir(name, 0755) != 0 || chdir(name) != 0)
			return 1;
		cases[i]();
		if (chdir("..") != 0)
			return 1;
	}
	return 0;
}
