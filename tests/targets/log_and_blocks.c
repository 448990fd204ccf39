/* libpmemlog and libpmemblk, with one pool each. */
#include <libpmemblk.h>
#include <libpmemlog.h>
#include <sys/uio.h>

#include "pool.h"

static int count_bytes(const void *at, size_t len, void *total)
{
	(void)at;
	*(size_t *)total += len;
	return 1;
}

static void append_to_log(const char *path)
{
	PMEMlogpool *log = pmemlog_create(path, PMEMLOG_MIN_POOL, 0600);
	REQUIRE(log != NULL);
	char text[200];
	for (int at = 0; at < 100; at++) {
		int len = snprintf(text, sizeof(text), "entry %d of the log\n", at);
		REQUIRE(pmemlog_append(log, text, (size_t)len) == 0);
	}
	struct iovec parts[] = {{"one", 3}, {"two", 3}, {text, sizeof(text)}};
	REQUIRE(pmemlog_appendv(log, parts, 3) == 0);
	size_t total = 0;
	pmemlog_walk(log, 64, count_bytes, &total);
	REQUIRE(total == (size_t)pmemlog_tell(log));
	printf("%zu\n", total);
	pmemlog_rewind(log);
	REQUIRE(pmemlog_append(log, "again", 5) == 0);
	pmemlog_close(log);
	REQUIRE(pmemlog_check(path) == 1);
}

static void write_blocks(const char *path)
{
	PMEMblkpool *blocks = pmemblk_create(path, 512, PMEMBLK_MIN_POOL, 0600);
	REQUIRE(blocks != NULL);
	char block[512];
	for (int at = 0; at < 60; at++) {
		memset(block, at + 1, sizeof(block));
		REQUIRE(pmemblk_write(blocks, block, at * 7 % 20) == 0);
	}
	REQUIRE(pmemblk_set_zero(blocks, 3) == 0);
	REQUIRE(pmemblk_set_error(blocks, 4) == 0);
	REQUIRE(pmemblk_read(blocks, block, 4) == -1);
	REQUIRE(pmemblk_read(blocks, block, 5) == 0);
	printf("%d\n", block[0]);
	pmemblk_close(blocks);
	REQUIRE(pmemblk_check(path, 512) == 1);
}

int main(int argc, char **argv)
{
	REQUIRE(argc == 3);
	if (strcmp(argv[1], "log") == 0)
		append_to_log(argv[2]);
	else
		write_blocks(argv[2]);
	return 0;
}
