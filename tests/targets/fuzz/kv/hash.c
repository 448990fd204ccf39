/*
 * A hash map with chains. Entries are inserted and removed by actions of libpmemobj, and are overwritten with
 * an undo slot. The count is stored beside them, with a flag that says when not to trust it.
 */
#include "hash.h"

#include "planted.h"
#include "resize.h"
#include "structure.h"
#include "transaction.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct map *map;

static uint64_t seal_of(uint64_t key, uint64_t value)
{
	return (key * 0x9e3779b97f4a7c15 ^ value) * 0xff51afd7ed558ccd + 1;
}

static void fill_in(struct entry *entry, uint64_t value)
{
	entry->value = value;
	memset(entry->text, 0, sizeof(entry->text));
	entry->seal = seal_of(entry->key, value);
}

/* The part of an entry that changes with its value. */
enum { CONTENT_BYTES = offsetof(struct entry, next) - offsetof(struct entry, value) };

offset *hash_bucket(uint64_t key)
{
	struct buckets *old = at(map->buckets);
	uint64_t index = key % old->count;
	if (!map->next || index >= map->moved)
		return &old->heads[index];
	struct buckets *next = at(map->next);
	return &next->heads[key % next->count];
}

/* The link to an entry, if there is one. */
static offset *find(uint64_t key)
{
	offset *slot = hash_bucket(key);
	while (*slot && ((struct entry *)at(*slot))->key != key)
		slot = &((struct entry *)at(*slot))->next;
	return *slot ? slot : NULL;
}

static void begin_count(void)
{
	map->count_dirty = 1;
	persist(&map->count_dirty, sizeof(map->count_dirty));
}

static void end_count(void)
{
	map->count_dirty = 0;
	persist(&map->count_dirty, sizeof(map->count_dirty));
}

static void insert(uint64_t key, uint64_t value)
{
	offset *head = hash_bucket(key);
	int is_chain = *head != 0;
	struct pobj_action actions[2];
	PMEMoid object = pmemobj_reserve(pool, &actions[0], sizeof(struct entry), 3);
	require(!OID_IS_NULL(object), "the pool is full");
	struct entry *entry = pmemobj_direct(object);
	entry->key = key;
	fill_in(entry, value);
	entry->next = *head;
	persist(entry, sizeof(*entry));
	begin_count();
	pmemobj_set_value(pool, &actions[1], head, object.off);
	require(pmemobj_publish(pool, actions, 2) == 0, "an entry is not published");
	map->count++; // bug 21: PF0101, PF0504 a chain grows, and the count is not made durable
	if (!(PLANTED(21) && is_chain))
		persist(&map->count, sizeof(map->count));
	end_count();
}

static void overwrite(struct entry *entry, uint64_t value)
{
	struct undo *undo = &map->undo;
	int is_same = entry->value == value;
	if (PLANTED(22)) {
		undo->valid = 1; // bug 22: PF0301 the undo slot is valid before it is filled
		persist(&undo->valid, sizeof(undo->valid));
	}
	undo->entry = link_to(entry); // bug 22: PF0301
	undo->value = entry->value; // bug 22: PF0301
	persist(&undo->entry, sizeof(undo->entry) + sizeof(undo->value));
	if (!PLANTED(22)) {
		undo->valid = 1;
		persist(&undo->valid, sizeof(undo->valid));
	}
	fill_in(entry, value);
	persist(&entry->value, CONTENT_BYTES);
	undo->valid = 0;
	persist(&undo->valid, sizeof(undo->valid));
	if (PLANTED(23) && is_same)
		persist(&undo->valid, sizeof(undo->valid)); // bug 23: PF0501 the slot is flushed again
}

static void hash_put(const char *text, uint64_t value)
{
	uint64_t key = number(text);
	hash_resize_step();
	offset *slot = find(key);
	if (slot) {
		overwrite(at(*slot), value);
	} else {
		insert(key, value);
		hash_grow_if_full();
	}
}

static int hash_get(const char *text, uint64_t *value)
{
	offset *slot = find(number(text));
	if (slot)
		*value = ((struct entry *)at(*slot))->value;
	return slot != NULL;
}

static void remove_entry(offset *slot, int is_head)
{
	struct entry *entry = at(*slot);
	PMEMoid object = pmemobj_oid(entry);
	begin_count();
	if (PLANTED(24) && !is_head) {
		*slot = entry->next; // bug 24: PF0101, PF0504 an entry is freed before it is durably unlinked
		pmemobj_free(&object);
	} else {
		struct pobj_action actions[2];
		pmemobj_set_value(pool, &actions[0], slot, entry->next);
		pmemobj_defer_free(pool, object, &actions[1]);
		require(pmemobj_publish(pool, actions, 2) == 0, "an entry is not removed");
	}
	map->count--;
	persist(&map->count, sizeof(map->count));
	end_count();
}

static int hash_remove(const char *text)
{
	uint64_t key = number(text);
	hash_resize_step();
	offset *slot = find(key);
	if (!slot)
		return 0;
	remove_entry(slot, slot == hash_bucket(key));
	hash_shrink_if_empty();
	return 1;
}

/* Calls visit with each entry; with a check, an invalid chain ends the program. */
static void each_entry(void (*visit)(const struct entry *, const offset *bucket))
{
	const struct buckets *arrays[] = {at(map->buckets), map->next ? at(map->next) : NULL};
	for (int i = 0; i < 2 && arrays[i]; i++)
		for (uint64_t j = 0; j < arrays[i]->count; j++) {
			uint64_t length = 0;
			for (offset it = arrays[i]->heads[j]; it; it = ((struct entry *)at(it))->next) {
				require(link_is_possible(it, sizeof(struct entry)), "hash: a link leads out of the pool");
				require(++length <= CAPACITY, "hash: a chain has no end");
				visit(at(it), &arrays[i]->heads[j]);
			}
		}
}

static uint64_t range_first, range_last, in_range;
static uint64_t keys_in_range[CAPACITY + 1];

static void note_in_range(const struct entry *entry, const offset *bucket)
{
	(void)bucket;
	if (entry->key >= range_first && entry->key <= range_last)
		keys_in_range[in_range++] = entry->key;
}

static uint64_t hash_drop(const char *first, const char *last)
{
	range_first = number(first);
	range_last = number(last);
	in_range = 0;
	each_entry(note_in_range);
	for (uint64_t i = 0; i < in_range; i++) {
		offset *slot = find(keys_in_range[i]);
		remove_entry(slot, slot == hash_bucket(keys_in_range[i]));
	}
	return in_range;
}

static void (*walk_visit)(const char *, uint64_t);

static void walk_entry(const struct entry *entry, const offset *bucket)
{
	(void)bucket;
	char key[24];
	snprintf(key, sizeof(key), "%" PRIu64, entry->key);
	walk_visit(key, entry->value);
}

static void hash_walk(void (*visit)(const char *, uint64_t))
{
	walk_visit = visit;
	each_entry(walk_entry);
}

static uint64_t hash_count(void)
{
	return map->count;
}

static uint64_t entries_seen;

static void count_entry(const struct entry *entry, const offset *bucket)
{
	(void)entry;
	(void)bucket;
	entries_seen++;
}

static void check_entry(const struct entry *entry, const offset *bucket)
{
	require(entry->seal == seal_of(entry->key, entry->value), "hash: an entry is torn");
	require(hash_bucket(entry->key) == bucket, "hash: an entry is in another bucket");
	entries_seen++;
}

static void hash_check(void)
{
	entries_seen = 0;
	each_entry(check_entry);
	require(entries_seen == map->count, "hash: the count is wrong");
	require(!map->count_dirty && !map->undo.valid, "hash: something was not finished");
}

static int construct(PMEMobjpool *in, void *object, void *argument)
{
	(void)in;
	(void)argument;
	memset(object, 0, sizeof(struct map));
	persist(object, sizeof(struct map));
	return 0;
}

static void recover_undo(void)
{
	struct undo *undo = &map->undo;
	if (!undo->valid)
		return;
	require(link_is_possible(undo->entry, sizeof(struct entry)), "hash: the undo slot is of no entry");
	struct entry *entry = at(undo->entry);
	entry->value = undo->value; // bug 30: PF0101, PF0504 the undone value may be lost
	entry->seal = seal_of(entry->key, undo->value); // bug 30: PF0101, PF0504
	if (!PLANTED(30))
		persist(&entry->value, CONTENT_BYTES);
	undo->valid = 0;
	persist(&undo->valid, sizeof(undo->valid));
}

static void recover_count(void)
{
	if (!map->count_dirty)
		return;
	entries_seen = 0;
	each_entry(count_entry);
	if (PLANTED(32)) {
		map->count_dirty = 0; // bug 32: PF0301 the count is trusted before it is correct
		persist(&map->count_dirty, sizeof(map->count_dirty));
	}
	map->count = entries_seen; // bug 32: PF0301
	persist(&map->count, sizeof(map->count));
	if (!PLANTED(32))
		end_count();
}

static void hash_open(void)
{
	if (OID_IS_NULL(root->hash))
		require(pmemobj_alloc(pool, &root->hash, sizeof(struct map), 4, construct, NULL) == 0,
			"the pool is full");
	map = pmemobj_direct(root->hash);
	recover_undo();
	if (map->buckets)
		recover_count();
	hash_resize_recover();
}

const struct structure hash = {
	.name = "hash",
	.open = hash_open,
	.put = hash_put,
	.get = hash_get,
	.remove = hash_remove,
	.drop = hash_drop,
	.walk = hash_walk,
	.count = hash_count,
	.check = hash_check,
};
