/* GDBM, with GDBM_SYNC: every store is synced, and none of them is atomic. */
#include "software.h"

#include <gdbm.h>

int main(int argc, char **argv)
{
	REQUIRE(argc >= 3);
	int is_run = strcmp(argv[1], "run") == 0;
	GDBM_FILE database = gdbm_open(argv[2], 512, (is_run ? GDBM_WRCREAT : GDBM_READER) | GDBM_SYNC, 0600, NULL);
	if (database == NULL)
		fprintf(stderr, "%s\n", gdbm_strerror(gdbm_errno));
	REQUIRE(database != NULL || (!is_run && gdbm_errno == GDBM_FILE_OPEN_ERROR));
	if (database == NULL)
		return 0; /* The crash came before the database had a name. */
	for (int number = 1; number <= RECORDS; number++) {
		char text[200];
		fill_record(text, number);
		datum key = {(char *)&number, sizeof(number)}, value = {text, sizeof(text)};
		if (is_run) {
			REQUIRE(gdbm_store(database, key, value, GDBM_REPLACE) == 0);
			printf("saved %d\n", number);
			fflush(stdout);
		} else {
			value = gdbm_fetch(database, key);
			if (value.dptr == NULL && gdbm_errno == GDBM_ITEM_NOT_FOUND)
				break;
			REQUIRE(value.dptr != NULL && is_record(value.dptr, (size_t)value.dsize, number));
			printf("%d\n", number);
		}
	}
	REQUIRE(gdbm_close(database) == 0);
	return 0;
}
