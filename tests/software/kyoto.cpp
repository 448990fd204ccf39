/* Kyoto Cabinet: a hash database, in hard transactions. */
#include <kchashdb.h>

#include "software.h"

int main(int argc, char **argv)
{
	REQUIRE(argc >= 3);
	bool is_run = strcmp(argv[1], "run") == 0;
	kyotocabinet::HashDB database;
	database.tune_buckets(31);
	database.tune_map(1 << 16);
	uint32_t mode = kyotocabinet::HashDB::OWRITER | kyotocabinet::HashDB::OAUTOSYNC;
	REQUIRE(database.open(argv[2], is_run ? mode | kyotocabinet::HashDB::OCREATE : mode));
	if (is_run) {
		for (int number = 1; number <= RECORDS; number++) {
			char text[200];
			fill_record(text, number);
			REQUIRE(database.begin_transaction(true));
			REQUIRE(database.set(reinterpret_cast<char *>(&number), sizeof(number), text, sizeof(text)));
			REQUIRE(database.end_transaction(true));
		}
	} else {
		int count = static_cast<int>(database.count());
		for (int number = 1; number <= count; number++) {
			size_t len;
			char *text = database.get(reinterpret_cast<char *>(&number), sizeof(number), &len);
			REQUIRE(text != nullptr && is_record(text, len, number));
			delete[] text;
		}
	}
	REQUIRE(database.close());
	return 0;
}
