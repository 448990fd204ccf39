/*
 * Figure 3 of the PMFuzz paper: a database with lists in persistent memory and a volatile table of its content. A
 * transaction that appends to a list adds the link at its head, but stores to the link at its tail. Every run
 * executes one command, so only a run that starts with an image with a non-empty list reaches this code.
 *
 * Arguments: pool. One command on standard input: "put KEY VALUE" or "get KEY". Without it, checks the lists.
 * -DBUGS_ALL plants the bug.
 */
#include "../kv/planted.h"

#include <libpmemobj.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LISTS = 4, ENTRIES_MAX = 1000 };

POBJ_LAYOUT_BEGIN(figure_3);
POBJ_LAYOUT_ROOT(figure_3, struct table);
POBJ_LAYOUT_TOID(figure_3, struct entry);
POBJ_LAYOUT_END(figure_3);

struct entry {
	uint64_t key, value;
	TOID(struct entry) next;
};

struct table {
	uint64_t count;
	TOID(struct entry) lists[LISTS];
};

static PMEMobjpool *pool;
static struct table *table;

/* The volatile state: all entries, and the last entry of each list. */
static struct entry *entries[ENTRIES_MAX];
static uint64_t entry_count;
static struct entry *tails[LISTS];

static void require(int condition)
{
	if (!condition) {
		fprintf(stderr, "the database is broken\n");
		exit(1);
	}
}

/* Opening the pool has rolled back uncommitted transactions. */
static void reconstruct(void)
{
	for (int i = 0; i < LISTS; i++)
		for (TOID(struct entry) it = table->lists[i]; !TOID_IS_NULL(it); it = D_RO(it)->next) {
			require(entry_count < ENTRIES_MAX);
			entries[entry_count++] = tails[i] = D_RW(it);
		}
	require(entry_count == table->count);
}

static struct entry *get(uint64_t key)
{
	for (uint64_t i = 0; i < entry_count; i++)
		if (entries[i]->key == key)
			return entries[i];
	return NULL;
}

static void append(uint64_t key, uint64_t value)
{
	struct entry *tail = tails[key % LISTS];
	TOID(struct entry) *head = &table->lists[key % LISTS];
	TX_BEGIN(pool) {
		TOID(struct entry) fresh = TX_ZNEW(struct entry);
		D_RW(fresh)->key = key;
		D_RW(fresh)->value = value;
		TX_ADD_DIRECT(&table->count);
		table->count++;
		if (!tail || PLANTED(3))
			TX_ADD_DIRECT(head); // bug 3: PF0507
		else
			TX_ADD_DIRECT(&tail->next);
		if (!tail)
			*head = fresh;
		else
			tail->next = fresh; // bug 3: PF0304 the head of the list is added, and its tail changed
	} TX_ONABORT {
		exit(2);
	} TX_END
}

static void put(uint64_t key, uint64_t value)
{
	struct entry *entry = get(key);
	if (entry) {
		entry->value = value;
		pmemobj_persist(pool, &entry->value, sizeof(entry->value));
	} else if (entry_count < ENTRIES_MAX) {
		append(key, value);
	}
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	const char *layout = POBJ_LAYOUT_NAME(figure_3);
	int exists = access(argv[1], F_OK) == 0;
	pool = exists ? pmemobj_open(argv[1], layout) : pmemobj_create(argv[1], layout, PMEMOBJ_MIN_POOL, 0600);
	if (!pool)
		return 2;
	table = D_RW(POBJ_ROOT(pool, struct table));
	reconstruct();

	char line[64], name[16];
	uint64_t key, value;
	if (fgets(line, sizeof(line), stdin)) {
		int words = sscanf(line, "%15s %lu %lu", name, &key, &value);
		if (words == 3 && strcmp(name, "put") == 0) {
			put(key, value);
		} else if (words == 2 && strcmp(name, "get") == 0) {
			const struct entry *entry = get(key);
			printf("%lu\n", entry ? entry->value : 0);
		}
	}
	pmemobj_close(pool);
	return 0;
}
