/*
 * SQLite. MODE: delete, truncate, persist, wal, mmap (a rollback journal, and the database mapped). SYNC is the value of
 * `PRAGMA synchronous`, full by default.
 */
#include "software.h"

#include <sqlite3.h>

static sqlite3 *database;

static void execute(const char *statement)
{
	REQUIRE(sqlite3_exec(database, statement, NULL, NULL, NULL) == SQLITE_OK);
}

static int number_of(const char *query)
{
	sqlite3_stmt *statement;
	REQUIRE(sqlite3_prepare_v2(database, query, -1, &statement, NULL) == SQLITE_OK);
	REQUIRE(sqlite3_step(statement) == SQLITE_ROW);
	int number = sqlite3_column_int(statement, 0);
	sqlite3_finalize(statement);
	return number;
}

int main(int argc, char **argv)
{
	REQUIRE(argc >= 3);
	const char *mode = argc > 3 ? argv[3] : "delete";
	REQUIRE(sqlite3_open(argv[2], &database) == SQLITE_OK);
	if (strcmp(mode, "mmap") == 0)
		execute("PRAGMA mmap_size = 1048576");
	else {
		char statement[64];
		snprintf(statement, sizeof(statement), "PRAGMA journal_mode = %s", mode);
		execute(statement);
	}
	char statement[64];
	snprintf(statement, sizeof(statement), "PRAGMA synchronous = %s", argc > 4 ? argv[4] : "full");
	execute(statement);
	if (strcmp(argv[1], "run") == 0) {
		execute("CREATE TABLE records (number INTEGER PRIMARY KEY, text TEXT)");
		for (int number = 1; number <= RECORDS; number++) {
			char text[200], statement[300];
			fill_record(text, number);
			snprintf(statement, sizeof(statement), "INSERT INTO records VALUES (%d, '%s')", number, text);
			execute(statement);
		}
	} else {
		int tables = number_of("SELECT count(*) FROM sqlite_schema WHERE name = 'records'");
		if (tables == 1) {
			int count = number_of("SELECT count(*) FROM records");
			for (int number = 1; number <= count; number++) {
				char text[200], query[400];
				fill_record(text, number);
				snprintf(query, sizeof(query),
					 "SELECT count(*) FROM records WHERE number = %d AND text = '%s'", number, text);
				REQUIRE(number_of(query) == 1);
			}
		}
		sqlite3_stmt *statement;
		REQUIRE(sqlite3_prepare_v2(database, "PRAGMA integrity_check", -1, &statement, NULL) == SQLITE_OK);
		REQUIRE(sqlite3_step(statement) == SQLITE_ROW);
		REQUIRE(strcmp((const char *)sqlite3_column_text(statement, 0), "ok") == 0);
		sqlite3_finalize(statement);
	}
	REQUIRE(sqlite3_close(database) == SQLITE_OK);
	return 0;
}
