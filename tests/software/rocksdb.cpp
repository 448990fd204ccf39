/* RocksDB. MODE: sync (each record is written with sync, the default), nosync. */
#include "software.h"

#include <rocksdb/db.h>
#include <string>

int main(int argc, char **argv)
{
	REQUIRE(argc >= 3);
	rocksdb::Options options;
	options.create_if_missing = true;
	options.paranoid_checks = true;
	rocksdb::DB *database;
	rocksdb::Status opened = rocksdb::DB::Open(options, argv[2], &database);
	if (!opened.ok())
		fprintf(stderr, "%s\n", opened.ToString().c_str());
	REQUIRE(opened.ok());
	if (strcmp(argv[1], "run") == 0) {
		rocksdb::WriteOptions write;
		write.sync = argc < 4 || strcmp(argv[3], "nosync") != 0;
		for (int number = 1; number <= RECORDS; number++) {
			char text[200];
			fill_record(text, number);
			REQUIRE(database->Put(write, std::to_string(number), rocksdb::Slice(text, sizeof(text))).ok());
			printf("saved %d\n", number);
			fflush(stdout);
		}
	} else {
		int count = 0;
		rocksdb::Iterator *iterator = database->NewIterator(rocksdb::ReadOptions());
		for (iterator->SeekToFirst(); iterator->Valid(); iterator->Next()) {
			count++;
			REQUIRE(iterator->key().ToString() == std::to_string(count));
			REQUIRE(is_record(iterator->value().data(), iterator->value().size(), count));
			printf("%d\n", count);
		}
		REQUIRE(iterator->status().ok());
		delete iterator;
	}
	delete database;
	return 0;
}
