/* libpmemlog: one record is one append. */
#include "software.h"

#include <libpmemlog.h>

static int check(const void *bytes, size_t len, void *unused)
{
	(void)unused;
	REQUIRE(len % 200 == 0);
	for (size_t at = 0; at < len; at += 200)
		REQUIRE(is_record((const char *)bytes + at, 200, (int)(at / 200) + 1));
	return 0;
}

int main(int argc, char **argv)
{
	REQUIRE(argc >= 3);
	int is_run = strcmp(argv[1], "run") == 0;
	PMEMlogpool *log = is_run ? pmemlog_create(argv[2], PMEMLOG_MIN_POOL, 0600) : pmemlog_open(argv[2]);
	REQUIRE(log != NULL);
	for (int number = 1; is_run && number <= RECORDS; number++) {
		char text[200];
		fill_record(text, number);
		REQUIRE(pmemlog_append(log, text, sizeof(text)) == 0);
	}
	if (!is_run)
		pmemlog_walk(log, 0, check, NULL);
	pmemlog_close(log);
	return 0;
}
