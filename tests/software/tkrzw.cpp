/* Tkrzw: a hash database on a mapped file, synchronized to the device after each record. */
#include <tkrzw_dbm_hash.h>
#include <tkrzw_file_mmap.h>

#include "software.h"

int main(int argc, char **argv)
{
	REQUIRE(argc >= 3);
	bool is_run = strcmp(argv[1], "run") == 0;
	tkrzw::HashDBM database(std::make_unique<tkrzw::MemoryMapParallelFile>());
	tkrzw::HashDBM::TuningParameters tuning;
	tuning.num_buckets = 31;
	tuning.update_mode = tkrzw::HashDBM::UPDATE_APPENDING;
	REQUIRE(database.OpenAdvanced(argv[2], true, tkrzw::File::OPEN_DEFAULT, tuning).IsOK());
	if (is_run) {
		for (int number = 1; number <= RECORDS; number++) {
			char text[200];
			fill_record(text, number);
			REQUIRE(database.Set(std::to_string(number), std::string_view(text, sizeof(text))).IsOK());
			REQUIRE(database.Synchronize(true).IsOK());
		}
	} else {
		int64_t count = database.CountSimple();
		for (int number = 1; number <= count; number++) {
			std::string text;
			REQUIRE(database.Get(std::to_string(number), &text).IsOK());
			REQUIRE(is_record(text.data(), text.size(), number));
		}
	}
	REQUIRE(database.Close().IsOK());
	return 0;
}
