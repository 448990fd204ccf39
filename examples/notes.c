/*
 * Notes in an SQLite database. Each note is a transaction, and is acknowledged when SQLite has committed it.
 *
 * With `PRAGMA synchronous=off` SQLite does not wait for the disk: a power failure can lose notes that were acknowledged, and
 * damage the database.
 *
 * notes DATABASE full|extra|off   adds three notes
 * notes DATABASE check      fails if the database is damaged
 * notes DATABASE list       prints the notes
 */
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

static int print(void *unused, int columns, char **values, char **names)
{
	(void)unused, (void)columns, (void)names;
	puts(values[0]);
	return 0;
}

static int is_whole(void *whole, int columns, char **values, char **names)
{
	(void)columns, (void)names;
	*(int *)whole = strcmp(values[0], "ok") == 0;
	return 0;
}

static int add(sqlite3 *database, const char *mode)
{
	static const char *const notes[] = {"milk", "bread", "tea"};
	char text[128];
	snprintf(text, sizeof text, "PRAGMA synchronous=%s", mode);
	sqlite3_exec(database, text, NULL, NULL, NULL);
	sqlite3_exec(database, "CREATE TABLE IF NOT EXISTS notes (text)", NULL, NULL, NULL);
	for (int i = 0; i < 3; i++) {
		snprintf(text, sizeof text, "INSERT INTO notes VALUES ('%s')", notes[i]);
		if (sqlite3_exec(database, text, NULL, NULL, NULL) != SQLITE_OK)
			return 1;
		printf("saved %s\n", notes[i]);
		fflush(stdout);
	}
	return 0;
}

int main(int argc, char **argv)
{
	sqlite3 *database;
	int result = 0, whole = 0;
	if (argc != 3) {
		fprintf(stderr, "usage: %s DATABASE full|extra|off|check|list\n", argv[0]);
		return 2;
	}
	if (sqlite3_open(argv[1], &database) != SQLITE_OK)
		return 1;
	if (strcmp(argv[2], "check") == 0) {
		result = sqlite3_exec(database, "PRAGMA integrity_check", is_whole, &whole, NULL);
		result = result != SQLITE_OK || !whole;
	} else if (strcmp(argv[2], "list") == 0) {
		/* Before the first commit there is no table. */
		sqlite3_exec(database, "SELECT text FROM notes", print, NULL, NULL);
	} else {
		result = add(database, argv[2]);
	}
	if (result != 0)
		fprintf(stderr, "%s: %s\n", argv[1], sqlite3_errmsg(database));
	sqlite3_close(database);
	return result;
}
