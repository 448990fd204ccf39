/*
 * What the four structures have in common. Keys are text; those of all but the radix tree are numbers.
 */
#ifndef STRUCTURE_H
#define STRUCTURE_H

#include <stdint.h>

struct structure {
	const char *name;
	/* Makes the structure if it is not there, and repairs what a crash may have left. */
	void (*open)(void);
	void (*put)(const char *key, uint64_t value);
	/* Whether the key is there. */
	int (*get)(const char *key, uint64_t *value);
	/* Whether the key was there. */
	int (*remove)(const char *key);
	/* Removes a range and returns how many keys there were. The radix tree removes all that begin like first. */
	uint64_t (*drop)(const char *first, const char *last);
	/* Calls visit with each key. */
	void (*walk)(void (*visit)(const char *key, uint64_t value));
	uint64_t (*count)(void);
	/* Ends the program if something is wrong. */
	void (*check)(void);
};

extern const struct structure btree, hash, radix, skip;

/* The key as a number. */
uint64_t number(const char *key);

#endif
