/*
 * A table in persistent memory with five operations, shared by programs that read commands in different ways. Each
 * operation leaves a mark in the pool, so that a test sees which ones an input has reached.
 */
#ifndef TABLE_H
#define TABLE_H

#include "../../pool.h"

enum operation {
	PUT_NEW,
	PUT_AGAIN,
	DELETE,
	SWAP,
	FILL,
	CLEAR,
	OPERATIONS
};

#define ROWS 32

struct row {
	uint64_t used, key, value, spare;
};

struct table {
	uint64_t marks[8];
	struct row rows[ROWS];
};

static struct table *table;

static inline void persist(volatile void *at)
{
	flush(at);
	sfence();
}

static inline void table_open(const char *path)
{
	table = (struct table *)map_pool(path, 8192);
}

static inline void mark(enum operation operation)
{
	table->marks[operation] = 1;
	persist(&table->marks[operation]);
}

static inline struct row *row_of(uint64_t key)
{
	for (int at = 0; at < ROWS; at++) {
		if (table->rows[at].used && table->rows[at].key == key)
			return &table->rows[at];
	}
	return NULL;
}

static inline void table_put(uint64_t key, uint64_t value)
{
	struct row *row = row_of(key);
	if (row) {
		row->value = value;
		persist(row);
		mark(PUT_AGAIN);
		return;
	}
	for (row = table->rows; row < table->rows + ROWS; row++) {
		if (!row->used) {
			row->key = key;
			row->value = value;
			persist(row);
			row->used = 1;
			persist(row);
			mark(PUT_NEW);
			return;
		}
	}
}

static inline void table_delete(uint64_t key)
{
	struct row *row = row_of(key);
	if (row) {
		row->used = 0;
		persist(row);
		mark(DELETE);
	}
}

static inline void table_swap(uint64_t one, uint64_t other)
{
	struct row *first = row_of(one), *second = row_of(other);
	if (first && second && first != second) {
		uint64_t value = first->value;
		first->value = second->value;
		persist(first);
		second->value = value;
		persist(second);
		mark(SWAP);
	}
}

static inline void table_fill(uint64_t from, uint64_t count)
{
	for (uint64_t at = 0; at < count && at < ROWS; at++)
		table_put(from + at, at);
	if (count > 0)
		mark(FILL);
}

static inline void table_clear(void)
{
	for (int at = 0; at < ROWS; at++) {
		if (table->rows[at].used) {
			table->rows[at].used = 0;
			persist(&table->rows[at]);
		}
	}
	mark(CLEAR);
}

#endif
