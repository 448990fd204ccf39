/* libpmemblk: one record is one block. */
#include "software.h"

#include <libpmemblk.h>

int main(int argc, char **argv)
{
	REQUIRE(argc >= 3);
	int is_run = strcmp(argv[1], "run") == 0;
	PMEMblkpool *blocks = is_run ? pmemblk_create(argv[2], 512, PMEMBLK_MIN_POOL, 0600) : pmemblk_open(argv[2], 512);
	REQUIRE(blocks != NULL);
	int ended = 0;
	for (int number = 1; number <= RECORDS; number++) {
		char block[512] = {0};
		if (is_run) {
			fill_record(block, number);
			REQUIRE(pmemblk_write(blocks, block, number) == 0);
		} else {
			REQUIRE(pmemblk_read(blocks, block, number) == 0);
			ended |= block[0] == 0;
			REQUIRE(ended ? block[0] == 0 : is_record(block, 200, number));
		}
	}
	pmemblk_close(blocks);
	return 0;
}
