/*
 * A redo log of some words: all of them change, or none. Used by the skip list.
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

/* Makes the log valid, applies it, and makes it invalid. */
void log_commit(struct log *log);

/* Applies a valid log. */
void log_recover(struct log *log);

#endif
