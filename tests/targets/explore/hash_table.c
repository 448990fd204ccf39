/*
 * A hash table whose buckets are cache lines, changed in place (based on the idea of P-CLHT).
 *
 * A bucket has a lock, three keys, their values and a link. A value is stored before its key: within one
 * line, stores become durable in order, so a key never appears without its value. A full bucket is followed
 * by another one, which is durable before it is linked. When too many have been added, everything is copied
 * to a table of twice the length, and one pointer is replaced.
 *
 * Locks are in the pool but mean nothing after a crash: opening the pool releases all of them, without
 * flushing them.
 *
 * Planted bugs:
 *   1  constructor: the descriptor of the table is not flushed
 *   2  constructor: the array of buckets is not flushed
 *   3  an additional bucket is linked before it is durable
 *   4  growing: the new table is published with the same fence that makes its buckets durable
 */
#include "index.h"

#define FIRST_COUNT 4UL
#define SLOTS 3

struct bucket {
	LINE uint64_t lock;
	uint64_t keys[SLOTS];
	uint64_t values[SLOTS];
	struct bucket *next;
};

struct table {
	LINE uint64_t count;
	struct bucket *buckets;
};

struct index {
	LINE struct table *table;
};

static struct index *index_root;
/* How many buckets were added to those of the table. */
static uint64_t added;

static struct bucket *head_of(struct table *table, uint64_t key)
{
	return &table->buckets[mix(key) & (table->count - 1)];
}

static void lock(struct bucket *bucket)
{
	while (__atomic_exchange_n(&bucket->lock, 1, __ATOMIC_ACQUIRE))
		;
}

static void unlock(struct bucket *bucket)
{
	STORE(bucket->lock, 0);
}

/* An empty table; the caller makes it durable. */
static struct table *make_table(uint64_t count)
{
	struct table *table = heap_allocate(sizeof(*table));
	table->count = count;
	table->buckets = heap_allocate(count * sizeof(struct bucket));
	memset(table->buckets, 0, count * sizeof(struct bucket));
	return table;
}

static void make_index(void)
{
	struct index *index = heap_allocate(sizeof(*index));
	struct table *table = make_table(FIRST_COUNT);
	index->table = table;
#if BUG != 2
	flush(table->buckets, FIRST_COUNT * sizeof(struct bucket));
#endif
#if BUG != 1
	flush(table, sizeof(*table));
#endif
	flush(index, sizeof(*index));
	fence();
	STORE(heap->root, index);
	persist(&heap->root, sizeof(heap->root));
}

static void index_open(void)
{
	if (!heap->root)
		make_index();
	index_root = heap->root;
	struct table *table = index_root->table;
	INTACT(heap_holds(table, sizeof(*table)));
	uint64_t count = table->count;
	INTACT(count && (count & (count - 1)) == 0 && count <= HEAP_BYTES / sizeof(struct bucket));
	INTACT(heap_holds(table->buckets, count * sizeof(struct bucket)));
	for (uint64_t i = 0; i < count; i++) {
		table->buckets[i].lock = 0;
		struct bucket *next = table->buckets[i].next;
		for (; next; next = next->next) {
			INTACT(heap_holds(next, sizeof(*next)));
			added++;
		}
	}
}

static bool index_find(uint64_t key, uint64_t *value)
{
	for (struct bucket *at = head_of(index_root->table, key); at; at = at->next) {
		for (int i = 0; i < SLOTS; i++) {
			if (at->keys[i] == key) {
				*value = at->values[i];
				return true;
			}
		}
	}
	return false;
}

/* A bucket with one key; the caller makes it durable. */
static struct bucket *make_bucket(uint64_t key, uint64_t value)
{
	struct bucket *bucket = heap_allocate(sizeof(*bucket));
	memset(bucket, 0, sizeof(*bucket));
	bucket->values[0] = value;
	bucket->keys[0] = key;
	return bucket;
}

/* Copies a key to a table that is not visible yet. */
static void copy_to(struct table *table, uint64_t key, uint64_t value, uint64_t *added_there)
{
	struct bucket *at = head_of(table, key);
	for (;; at = at->next) {
		for (int i = 0; i < SLOTS; i++) {
			if (!at->keys[i]) {
				at->values[i] = value;
				at->keys[i] = key;
				return;
			}
		}
		if (!at->next)
			break;
	}
	at->next = make_bucket(key, value);
	++*added_there;
}

static void flush_table(struct table *table)
{
	flush(table, sizeof(*table));
	flush(table->buckets, table->count * sizeof(struct bucket));
	for (uint64_t i = 0; i < table->count; i++)
		for (struct bucket *at = table->buckets[i].next; at; at = at->next)
			flush(at, sizeof(*at));
}

static void grow(void)
{
	struct table *old = index_root->table;
	struct table *table = make_table(2 * old->count);
	uint64_t added_there = 0;
	for (uint64_t i = 0; i < old->count; i++)
		for (struct bucket *at = &old->buckets[i]; at; at = at->next)
			for (int slot = 0; slot < SLOTS; slot++)
				if (at->keys[slot])
					copy_to(table, at->keys[slot], at->values[slot], &added_there);
	flush_table(table);
#if BUG != 4
	fence();
#endif
	STORE(index_root->table, table);
	persist(&index_root->table, sizeof(index_root->table));
	added = added_there;
}

/* Stores a key in the first free slot of a chain. Returns false if there is none. */
static bool insert_in_place(struct bucket *head, uint64_t key, uint64_t value)
{
	for (struct bucket *at = head; at; at = at->next) {
		for (int i = 0; i < SLOTS; i++) {
			if (at->keys[i])
				continue;
			STORE(at->values[i], value);
			STORE(at->keys[i], key);
			persist(at, sizeof(*at));
			return true;
		}
	}
	return false;
}

static bool update(struct bucket *head, uint64_t key, uint64_t value)
{
	for (struct bucket *at = head; at; at = at->next) {
		for (int i = 0; i < SLOTS; i++) {
			if (at->keys[i] != key)
				continue;
			STORE(at->values[i], value);
			persist(&at->values[i], sizeof(value));
			return true;
		}
	}
	return false;
}

/* Links an additional bucket with the key to a full chain. */
static void insert_behind(struct bucket *head, uint64_t key, uint64_t value)
{
	struct bucket *last = head;
	while (last->next)
		last = last->next;
	struct bucket *bucket = make_bucket(key, value);
#if BUG != 3
	persist(bucket, sizeof(*bucket));
#endif
	STORE(last->next, bucket);
	persist(&last->next, sizeof(last->next));
#if BUG == 3
	persist(bucket, sizeof(*bucket));
#endif
	added++;
}

static void index_insert(uint64_t key, uint64_t value)
{
	for (;;) {
		struct table *table = index_root->table;
		struct bucket *head = head_of(table, key);
		lock(head);
		bool done = update(head, key, value) || insert_in_place(head, key, value);
		if (!done && 2 * added < table->count) {
			insert_behind(head, key, value);
			done = true;
		}
		unlock(head);
		if (done)
			return;
		grow();
	}
}

static void index_walk(visitor *visit)
{
	struct table *table = index_root->table;
	for (uint64_t i = 0; i < table->count; i++) {
		for (struct bucket *at = &table->buckets[i]; at; at = at->next) {
			for (int slot = 0; slot < SLOTS; slot++) {
				uint64_t key = at->keys[slot];
				if (!key)
					continue;
				INTACT((mix(key) & (table->count - 1)) == i);
				visit(key, at->values[slot]);
			}
		}
	}
}

#include "judge.h"
