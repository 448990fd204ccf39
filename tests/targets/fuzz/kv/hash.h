/*
 * The hash map, for the files that it consists of.
 */
#ifndef HASH_H
#define HASH_H

#include "store.h"

/* What recovery has to tell apart is kept in lines of its own. */
enum { LINE_BYTES = 64 };

struct entry {
	uint64_t key;
	uint64_t value;
	char text[48];
	/* Of key and value: both are of the same time, or the entry is broken. */
	uint64_t seal;
	offset next;
};

struct buckets {
	uint64_t count;
	offset heads[];
};

/* What an entry held before it is overwritten; only if it is valid. */
struct undo {
	uint64_t valid;
	char apart[LINE_BYTES];
	offset entry;
	uint64_t value;
};

struct map {
	/* The count may be wrong. */
	uint64_t count_dirty;
	char apart_1[LINE_BYTES];
	uint64_t count;
	char apart_2[LINE_BYTES];
	offset buckets;
	/* While the map is resized: where entries go, and how many of the old buckets have gone there. */
	offset next;
	uint64_t moved;
	uint64_t grown_at_open;
	char apart_3[LINE_BYTES];
	/* An array that is made and not yet used. */
	PMEMoid spare;
	char apart_4[LINE_BYTES];
	struct undo undo;
};

extern struct map *map;

/* The bucket in which a key is, or will be. */
offset *hash_bucket(uint64_t key);

#endif
