/*
 * LMDB. MODE: default, writemap, nometasync (the last transaction can be lost), nosync (with the map, and without syncing: not
 * safe by its own documentation), nosync-write (the same without the map).
 */
#include "software.h"

#include <lmdb.h>

int main(int argc, char **argv)
{
	REQUIRE(argc >= 3);
	const char *mode = argc > 3 ? argv[3] : "default";
	unsigned flags = MDB_NOSUBDIR;
	if (strcmp(mode, "writemap") == 0)
		flags |= MDB_WRITEMAP;
	else if (strcmp(mode, "nosync") == 0)
		flags |= MDB_WRITEMAP | MDB_NOSYNC;
	else if (strcmp(mode, "nosync-write") == 0)
		flags |= MDB_NOSYNC;
	else if (strcmp(mode, "nometasync") == 0)
		flags |= MDB_NOMETASYNC;
	MDB_env *environment;
	REQUIRE(mdb_env_create(&environment) == 0);
	REQUIRE(mdb_env_set_mapsize(environment, 256 * 1024) == 0);
	int opened = mdb_env_open(environment, argv[2], flags, 0600);
	REQUIRE(opened == 0);
	MDB_txn *transaction;
	MDB_dbi table;
	if (strcmp(argv[1], "run") == 0) {
		for (int number = 1; number <= RECORDS; number++) {
			char text[200];
			fill_record(text, number);
			REQUIRE(mdb_txn_begin(environment, NULL, 0, &transaction) == 0);
			REQUIRE(mdb_dbi_open(transaction, NULL, 0, &table) == 0);
			MDB_val key = {sizeof(number), &number}, value = {sizeof(text), text};
			REQUIRE(mdb_put(transaction, table, &key, &value, 0) == 0);
			REQUIRE(mdb_txn_commit(transaction) == 0);
		}
		mdb_env_close(environment);
		return 0;
	}
	REQUIRE(mdb_txn_begin(environment, NULL, MDB_RDONLY, &transaction) == 0);
	REQUIRE(mdb_dbi_open(transaction, NULL, 0, &table) == 0);
	MDB_stat status;
	REQUIRE(mdb_stat(transaction, table, &status) == 0);
	for (int number = 1; number <= (int)status.ms_entries; number++) {
		MDB_val key = {sizeof(number), &number}, value;
		REQUIRE(mdb_get(transaction, table, &key, &value) == 0);
		REQUIRE(is_record(value.mv_data, value.mv_size, number));
	}
	mdb_txn_abort(transaction);
	mdb_env_close(environment);
	return 0;
}
