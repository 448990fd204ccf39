/* Berkeley DB: a B-tree without an environment, synced after each record. */
#include "software.h"

#include <db.h>
#include <errno.h>

int main(int argc, char **argv)
{
	REQUIRE(argc >= 3);
	DB *database;
	REQUIRE(db_create(&database, NULL, 0) == 0);
	int is_run = strcmp(argv[1], "run") == 0;
	int opened = database->open(database, NULL, argv[2], NULL, DB_BTREE, is_run ? DB_CREATE : DB_RDONLY, 0600);
	if (opened == ENOENT && !is_run)
		return 0; /* The crash came before the database had a name. */
	REQUIRE(opened == 0);
	for (int number = 1; number <= RECORDS; number++) {
		char text[200];
		fill_record(text, number);
		DBT key = {.data = &number, .size = sizeof(number)};
		DBT value = {.data = text, .size = sizeof(text)};
		if (is_run) {
			REQUIRE(database->put(database, NULL, &key, &value, 0) == 0);
			REQUIRE(database->sync(database, 0) == 0);
		} else if (database->get(database, NULL, &key, &value, 0) == 0) {
			REQUIRE(is_record(value.data, value.size, number));
		} else {
			break;
		}
	}
	REQUIRE(database->close(database, 0) == 0);
	return 0;
}
