/*
 * The interface of the four structures. Keys are text; those of all but the radix tree are numbers.
 */
#ifndef STRUCTURE_H
#define STRUCTURE_H

#include <stdint.h>

struct structure {
	const char *name;
	/* Creates the structure if it does not exist, and repairs it after a crash. */
	void (*open)(void);
	void (*put)(const char *key, uint64_t value);
	/* Returns whether the key exists. */
	int (*get)(const char *key, uint64_t *value);
	/* Returns whether the key existed. */
	int (*remove)(const char *key);
	/* Removes a range; returns the number of removed keys. Radix tree: all keys that begin with first. */
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
