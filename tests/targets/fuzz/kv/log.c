#include "log.h"

#include "planted.h"

/* Logs that do not fit into one line. */
enum { LONG = 5, VERY_LONG = 6 };

/* The number of words so far; the log itself is filled when it is complete. */
static uint64_t count;
static struct {
	uint64_t *where;
	uint64_t value;
} pending[LOG_MAX];

void log_begin(struct log *log)
{
	require(!log->valid, "log: in use");
	count = 0;
}

void log_word(struct log *log, uint64_t *where, uint64_t value)
{
	(void)log;
	pending[count].where = where;
	pending[count++].value = value;
}

static void fill(struct log *log)
{
	for (uint64_t i = 0; i < count; i++) {
		log->words[i].where = link_to(pending[i].where); // bug 34: PF0301 a long log is valid before it is durable
		log->words[i].value = pending[i].value; // bug 34: PF0301
	}
	log->count = count; // bug 34: PF0301
	size_t length = offsetof(struct log, words[count]) - offsetof(struct log, count);
	if (!(PLANTED(34) && count == LONG)) {
		persist(&log->count, length);
		log->valid = 1;
		persist(&log->valid, sizeof(log->valid));
	} else {
		log->valid = 1;
		persist(log, sizeof(log->valid) + length);
	}
}

static void invalidate(struct log *log)
{
	log->valid = 0;
	persist(&log->valid, sizeof(log->valid));
}

void log_commit(struct log *log)
{
	fill(log);
	for (uint64_t i = 0; i < count; i++) {
		*pending[i].where = pending[i].value; // bug 35: PF0101, PF0504 the second word of a very long log is not made durable
		if (!(PLANTED(35) && count >= VERY_LONG && i == 1))
			pmemobj_flush(pool, pending[i].where, sizeof(uint64_t));
	}
	pmemobj_drain(pool);
	invalidate(log);
}

void log_recover(struct log *log)
{
	if (!log->valid)
		return;
	require(log->count > 0 && log->count <= LOG_MAX, "log: too long");
	for (uint64_t i = 0; i < log->count; i++) {
		require(link_is_possible(log->words[i].where, sizeof(uint64_t)), "log: a word is out of the pool");
		uint64_t *word = at(log->words[i].where);
		*word = log->words[i].value; // bug 36: PF0101, PF0504 the redone stores may be lost
		if (!PLANTED(36))
			pmemobj_flush(pool, word, sizeof(*word));
	}
	if (!PLANTED(36))
		pmemobj_drain(pool);
	invalidate(log);
}
