/*
 * A key-value shell on libpmemobj, for the fuzzer: four structures, commands on standard input, one per line.
 *
 *   kv POOL            runs commands; without any, checks everything as below
 *   kv POOL --check    opens the pool, which repairs it, and checks everything
 *   kv POOL --dump     prints the content
 *
 *   use NAME           btree, hash, radix or skip; the next commands are for it
 *   put KEY VALUE      get KEY      del KEY
 *   drop FIRST LAST    removes a range (radix: all keys that begin with FIRST)
 *   range FIRST LAST   prints a range
 *   resize BUCKETS     of the hash map
 *   count              dump         check
 */
#include "planted.h"
#include "resize.h"
#include "store.h"
#include "structure.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct structure *const structures[] = {&btree, &hash, &radix, &skip};
enum { STRUCTURES = sizeof(structures) / sizeof(*structures) };

static const struct structure *current = &btree;

/* The current range, for walks. */
static const char *range_first, *range_last;

uint64_t number(const char *key)
{
	return strtoull(key, NULL, 10);
}

static void print(const char *key, uint64_t value)
{
	printf("%s=%" PRIu64 "\n", key, value);
}

static void print_in_range(const char *key, uint64_t value)
{
	int numbers = current != &radix;
	int before = numbers ? number(key) < number(range_first) : strcmp(key, range_first) < 0;
	int behind = numbers ? number(key) > number(range_last) : strcmp(key, range_last) > 0;
	if (!before && !behind)
		print(key, value);
}

static void dump(void)
{
	for (int i = 0; i < STRUCTURES; i++) {
		printf("%s:\n", structures[i]->name);
		structures[i]->walk(print);
	}
}

/* Inserts and removes a key: a dangling link is found when it is used. */
static void probe(const struct structure *it)
{
	static const char KEY[] = "1000003";
	uint64_t value;
	uint64_t before = it->count();
	if (it->get(KEY, &value) || before >= CAPACITY)
		return;
	it->put(KEY, 1);
	require(it->get(KEY, &value) && value == 1, "a key does not come");
	require(it->remove(KEY) && !it->get(KEY, &value), "a key does not go");
	require(it->count() == before, "a key is counted after it is gone");
}

static void check_all(void)
{
	for (int i = 0; i < STRUCTURES; i++)
		structures[i]->check();
	for (int i = 0; i < STRUCTURES; i++)
		probe(structures[i]);
	for (int i = 0; i < STRUCTURES; i++)
		structures[i]->check();
}

static void use(const char *name)
{
	for (int i = 0; i < STRUCTURES; i++)
		if (strcmp(structures[i]->name, name) == 0)
			current = structures[i];
}

static void put(const char *key, const char *value)
{
	if (current->count() < CAPACITY)
		current->put(key, number(value));
	else
		printf("full\n");
}

static void run(char *line)
{
	const char *word[3] = {NULL};
	int words = 0;
	for (char *it = strtok(line, " \t\r\n"); it && words < 3; it = strtok(NULL, " \t\r\n"))
		word[words++] = it;
	if (words == 0)
		return;
	uint64_t value;
	const char *name = word[0];
	if (words == 2 && strcmp(name, "use") == 0) {
		use(word[1]);
	} else if (words == 3 && strcmp(name, "put") == 0) {
		put(word[1], word[2]);
	} else if (words == 2 && strcmp(name, "get") == 0) {
		if (current->get(word[1], &value))
			print(word[1], value);
	} else if (words == 2 && strcmp(name, "del") == 0) {
		if (!current->remove(word[1]))
			printf("not there\n");
	} else if (words >= 2 && strcmp(name, "drop") == 0) {
		printf("%" PRIu64 " removed\n", current->drop(word[1], word[words - 1]));
	} else if (words == 3 && strcmp(name, "range") == 0) {
		range_first = word[1];
		range_last = word[2];
		current->walk(print_in_range);
	} else if (words == 2 && strcmp(name, "resize") == 0) {
		hash_resize(number(word[1]));
	} else if (strcmp(name, "count") == 0) {
		printf("%" PRIu64 "\n", current->count());
	} else if (strcmp(name, "dump") == 0) {
		dump();
	} else if (strcmp(name, "check") == 0) {
		check_all();
	} else {
		printf("?\n");
	}
}

#ifdef __AFL_HAVE_MANUAL_CONTROL
#include <unistd.h>
#endif

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: kv POOL [--check | --dump]\n");
		return 2;
	}
#ifdef __AFL_HAVE_MANUAL_CONTROL
	/* As late as possible: every run needs its own pool. */
	__AFL_INIT();
	unlink(argv[1]);
#endif
	store_open(argv[1]);
	for (int i = 0; i < STRUCTURES; i++)
		structures[i]->open();

	int lines = 0;
	if (argc > 2 && strcmp(argv[2], "--dump") == 0) {
		dump();
	} else {
		char line[256];
		int checks = argc > 2 && strcmp(argv[2], "--check") == 0;
		for (; !checks && fgets(line, sizeof(line), stdin); lines++)
			run(line);
		if (lines == 0)
			check_all();
	}
	store_close();
	return 0;
}
