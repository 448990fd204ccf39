/*
 * A redo log of some words: all of them change, or none. The skip list has one.
 */
#ifndef LOG_H
#define LOG_H

#include "store.h"

enum { LOG_MAX = 8 };

struct log {
	uint64_t valid;
	uint64_t count;
	struct {
		offset where;
		uint64_t value;
	} words[LOG_MAX];
};

void log_begin(struct log *log);
void log_word(struct log *log, uint64_t *where, uint64_t value);

/* Makes the log valid, does what it says, and makes it invalid. */
void log_commit(struct log *log);

/* Does what a valid log says. */
void log_recover(struct log *log);

#endif
