/* libpmemobj: records and their number, in transactions. */
#include "software.h"

#include <libpmemobj.h>

struct records {
	int count;
	char text[RECORDS][200];
};

int main(int argc, char **argv)
{
	REQUIRE(argc >= 3);
	int is_run = strcmp(argv[1], "run") == 0;
	PMEMobjpool *pool = is_run ? pmemobj_create(argv[2], "records", PMEMOBJ_MIN_POOL, 0600)
				   : pmemobj_open(argv[2], "records");
	REQUIRE(pool != NULL);
	struct records *records = pmemobj_direct(pmemobj_root(pool, sizeof(struct records)));
	if (is_run) {
		for (int number = 1; number <= RECORDS; number++) {
			TX_BEGIN(pool) {
				TX_ADD_DIRECT(&records->count);
				TX_ADD_DIRECT(&records->text[number - 1]);
				fill_record(records->text[number - 1], number);
				records->count = number;
			} TX_ONABORT {
				exit(1);
			} TX_END
		}
	} else {
		for (int number = 1; number <= records->count; number++)
			REQUIRE(is_record(records->text[number - 1], 200, number));
	}
	pmemobj_close(pool);
	return 0;
}
