/*
 * The workload and the judge that all indexes share.
 *
 *     PROGRAM POOL insert N    opens or creates the pool and inserts the missing keys up to N;
 *                              each is durable before it is counted as acknowledged
 *     PROGRAM POOL recover     opens the pool, repairs and judges it, and repeats the insert that may
 *                              have been interrupted
 *
 * Recovery succeeds if all acknowledged keys exist, once and with their values, nothing else exists except
 * the insert that was in progress, the index satisfies its own rules, and the next insert works.
 *
 * An index includes this file last and defines before that: index_open, which also repairs; index_insert;
 * index_find; and index_walk, which checks the rules of the index and visits each key once.
 */
#ifndef JUDGE_H
#define JUDGE_H

#include "index.h"

#ifndef KEY
/* The key of the insert with this number. */
#define KEY(number) mix(number)
#endif

static unsigned char seen[KEYS_MAX + 1];
static uint64_t acknowledged;

static void visit(uint64_t key, uint64_t value)
{
	for (uint64_t i = 0; i <= acknowledged; i++) {
		if (KEY(i) != key)
			continue;
		INTACT(value == value_of(key));
		INTACT(!seen[i]);
		seen[i] = 1;
		return;
	}
	INTACT(!"a key that was never inserted");
}

/* All keys up to a number exist, and nothing else except possibly the next one. */
static void judge(uint64_t count)
{
	uint64_t value;
	memset(seen, 0, sizeof(seen));
	index_walk(visit);
	for (uint64_t i = 0; i < count; i++) {
		INTACT(seen[i]);
		INTACT(index_find(KEY(i), &value) && value == value_of(KEY(i)));
	}
	if (count == acknowledged)
		INTACT(index_find(KEY(count), &value) == seen[count]);
}

int main(int argc, char **argv)
{
	REQUIRE(argc >= 3);
	heap_open(argv[1]);
	acknowledged = heap->acknowledged;
	INTACT(acknowledged < KEYS_MAX);
	index_open();
	if (strcmp(argv[2], "recover") == 0) {
		uint64_t next = KEY(acknowledged);
		judge(acknowledged);
		index_insert(next, value_of(next));
		judge(acknowledged + 1);
		return 0;
	}
	REQUIRE(strcmp(argv[2], "insert") == 0 && argc == 4);
	uint64_t count = strtoul(argv[3], NULL, 10);
	REQUIRE(count < KEYS_MAX);
	for (uint64_t i = acknowledged; i < count; i++) {
		index_insert(KEY(i), value_of(KEY(i)));
		STORE(heap->acknowledged, i + 1);
		persist(&heap->acknowledged, sizeof(heap->acknowledged));
	}
	return 0;
}

#endif
