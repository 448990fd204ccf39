/*
 * Shared by the files of the hash map.
 */
#ifndef HASH_H
#define HASH_H

#include "store.h"

/* Data that recovery must distinguish is in separate lines. */
enum { LINE_BYTES = 64 };

struct entry {
	uint64_t key;
	uint64_t value;
	char text[48];
	/* Checksum of key and value: both are from the same time, or the entry is broken. */
	uint64_t seal;
	offset next;
};

struct buckets {
	uint64_t count;
	offset heads[];
};

/* The content of an entry before it is overwritten; only if it is valid. */
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
	/* While the map is resized: the new array, and how many of the old buckets have been moved to it. */
	offset next;
	uint64_t moved;
	uint64_t grown_at_open;
	char apart_3[LINE_BYTES];
	/* An array that is allocated and not yet in use. */
	PMEMoid spare;
	char apart_4[LINE_BYTES];
	struct undo undo;
};

extern struct map *map;

/* The bucket that contains, or will contain, a key. */
offset *hash_bucket(uint64_t key);

#endif
