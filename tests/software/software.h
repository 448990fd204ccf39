/*
 * What the programs of this folder share. Each keeps a counter and its records in a database of others:
 *
 *   PROGRAM run PATH [MODE]     makes the database, and commits records 1 to RECORDS, one at a time
 *   PROGRAM check PATH [MODE]   opens what a crash left, and fails unless it holds exactly the records 1 to n for some n
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORDS 4

/* Ends the program with the text of a condition that does not hold. */
#define REQUIRE(condition)                                                         \
	do {                                                                       \
		if (!(condition)) {                                                \
			fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
			exit(1);                                                   \
		}                                                                  \
	} while (0)

/* The value of a record: long enough for several cache lines. */
static inline void fill_record(char text[200], int number)
{
	memset(text, 'a' + number, 199);
	text[199] = 0;
}

static inline int is_record(const void *bytes, size_t len, int number)
{
	char expected[200];
	fill_record(expected, number);
	return len == sizeof(expected) && memcmp(bytes, expected, len) == 0;
}
