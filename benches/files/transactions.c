/*
 * SQLite in WAL mode: `transactions run DIR N` commits N transactions, `transactions check DIR` verifies that the records of a
 * prefix of them are there.
 */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sqlite3 *database;

static void require(int holds)
{
	if (!holds) {
		fprintf(stderr, "%s\n", sqlite3_errmsg(database));
		exit(1);
	}
}

static void execute(const char *statement)
{
	require(sqlite3_exec(database, statement, NULL, NULL, NULL) == SQLITE_OK);
}

static int number_of(const char *query)
{
	sqlite3_stmt *statement;
	require(sqlite3_prepare_v2(database, query, -1, &statement, NULL) == SQLITE_OK);
	require(sqlite3_step(statement) == SQLITE_ROW);
	int number = sqlite3_column_int(statement, 0);
	sqlite3_finalize(statement);
	return number;
}

int main(int argc, char **argv)
{
	char path[4096], statement[256];
	snprintf(path, sizeof(path), "%s/db", argv[2]);
	require(argc >= 3 && sqlite3_open(path, &database) == SQLITE_OK);
	execute("PRAGMA journal_mode = wal");
	execute("PRAGMA synchronous = full");
	if (strcmp(argv[1], "run") == 0) {
		execute("CREATE TABLE records (number INTEGER PRIMARY KEY, text TEXT)");
		for (int number = 1; number <= atoi(argv[3]); number++) {
			snprintf(statement, sizeof(statement), "INSERT INTO records VALUES (%d, 'record %d')", number, number);
			execute(statement);
		}
	} else if (number_of("SELECT count(*) FROM sqlite_schema WHERE name = 'records'") == 1) {
		require(number_of("SELECT count(*) = coalesce(max(number), 0) FROM records") == 1);
		require(number_of("SELECT count(*) FROM records WHERE text <> 'record ' || number") == 0);
	}
	sqlite3_close(database);
	return 0;
}
