/* Tokyo Cabinet: a hash database, in transactions (MODE transactions, the default) or synced after each record (sync). */
#include "software.h"

#include <stdint.h>
#include <tcutil.h>
#include <tchdb.h>

int main(int argc, char **argv)
{
	REQUIRE(argc >= 3);
	int has_transactions = argc < 4 || strcmp(argv[3], "transactions") == 0;
	int is_run = strcmp(argv[1], "run") == 0;
	TCHDB *database = tchdbnew();
	REQUIRE(tchdbtune(database, 31, -1, -1, HDBTLARGE));
	REQUIRE(tchdbopen(database, argv[2], HDBOWRITER | HDBOREADER | HDBOTSYNC | (is_run ? HDBOCREAT : 0)));
	if (is_run) {
		for (int number = 1; number <= RECORDS; number++) {
			char text[200];
			fill_record(text, number);
			if (has_transactions)
				REQUIRE(tchdbtranbegin(database));
			REQUIRE(tchdbput(database, &number, sizeof(number), text, sizeof(text)));
			REQUIRE(has_transactions ? tchdbtrancommit(database) : tchdbsync(database));
		}
	} else {
		int count = (int)tchdbrnum(database);
		for (int number = 1; number <= count; number++) {
			int len;
			void *text = tchdbget(database, &number, sizeof(number), &len);
			REQUIRE(text != NULL && is_record(text, (size_t)len, number));
			free(text);
		}
	}
	REQUIRE(tchdbclose(database));
	tchdbdel(database);
	return 0;
}
