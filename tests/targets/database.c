/* LMDB in write-map mode, where it stores to its mapped file. Arguments: file, flags. */
#include <lmdb.h>

#include "pool.h"

int main(int argc, char **argv)
{
	REQUIRE(argc == 3);
	MDB_env *environment;
	REQUIRE(mdb_env_create(&environment) == 0);
	REQUIRE(mdb_env_set_mapsize(environment, 4 * MIB) == 0);
	unsigned flags = MDB_NOSUBDIR | MDB_WRITEMAP;
	if (strcmp(argv[2], "async") == 0)
		flags |= MDB_MAPASYNC;
	REQUIRE(mdb_env_open(environment, argv[1], flags, 0600) == 0);
	MDB_dbi table = 0;
	for (int batch = 0; batch < 20; batch++) {
		MDB_txn *transaction;
		REQUIRE(mdb_txn_begin(environment, NULL, 0, &transaction) == 0);
		if (batch == 0)
			REQUIRE(mdb_dbi_open(transaction, NULL, 0, &table) == 0);
		for (int at = 0; at < 25; at++) {
			char name[32], text[300];
			snprintf(name, sizeof(name), "key %d", (batch * 25 + at) * 37 % 301);
			memset(text, 'a' + at, sizeof(text));
			MDB_val key = {strlen(name), name};
			MDB_val value = {(size_t)(at * 11 + 10), text};
			if (at % 6 == 5)
				(void)mdb_del(transaction, table, &key, NULL);
			else
				REQUIRE(mdb_put(transaction, table, &key, &value, 0) == 0);
		}
		if (batch % 5 == 4)
			mdb_txn_abort(transaction);
		else
			REQUIRE(mdb_txn_commit(transaction) == 0);
	}
	REQUIRE(mdb_env_sync(environment, 1) == 0);
	MDB_stat status;
	REQUIRE(mdb_env_stat(environment, &status) == 0);
	printf("%zu\n", status.ms_entries);
	mdb_env_close(environment);
	return 0;
}
