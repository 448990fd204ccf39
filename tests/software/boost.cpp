/* Boost.Interprocess: a vector in a mapped file, flushed after each record. It makes no promise about crashes. */
#include <boost/interprocess/allocators/allocator.hpp>
#include <boost/interprocess/containers/vector.hpp>
#include <boost/interprocess/managed_mapped_file.hpp>

#include "software.h"

namespace ipc = boost::interprocess;

struct Record {
	char text[200];
};
using Allocator = ipc::allocator<Record, ipc::managed_mapped_file::segment_manager>;
using Records = ipc::vector<Record, Allocator>;

int main(int argc, char **argv)
{
	REQUIRE(argc >= 3);
	bool is_run = strcmp(argv[1], "run") == 0;
	if (is_run) {
		ipc::managed_mapped_file file(ipc::open_or_create, argv[2], 64 * 1024);
		Records *records = file.find_or_construct<Records>("records")(Allocator(file.get_segment_manager()));
		records->reserve(RECORDS);
		for (int number = 1; number <= RECORDS; number++) {
			Record record;
			fill_record(record.text, number);
			records->push_back(record);
			REQUIRE(file.flush());
		}
		return 0;
	}
	ipc::managed_mapped_file file(ipc::open_only, argv[2]);
	auto found = file.find<Records>("records");
	if (found.first == nullptr)
		return 0;
	int number = 0;
	for (const Record &record : *found.first)
		REQUIRE(is_record(record.text, sizeof(record.text), ++number));
	return 0;
}
