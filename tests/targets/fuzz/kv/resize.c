#include "resize.h"

#include "hash.h"
#include "planted.h"
#include "transaction.h"

#include <string.h>

enum { BUCKETS_MIN = 4, BUCKETS_MAX = 256, GROW_LOAD = 3, GROW_LOAD_AT_OPEN = 2, SHRINK_LOAD = 4 };

static struct buckets *buckets(void)
{
	return at(map->buckets);
}

static int construct(PMEMobjpool *in, void *object, void *argument)
{
	(void)in;
	struct buckets *it = object;
	it->count = *(uint64_t *)argument;
	memset(it->heads, 0, it->count * sizeof(offset));
	persist(it, sizeof(*it) + it->count * sizeof(offset));
	return 0;
}

/* An array that is not in use yet. */
static void make_spare(uint64_t count)
{
	size_t size = sizeof(struct buckets) + count * sizeof(offset);
	require(pmemobj_alloc(pool, &map->spare, size, 2, construct, &count) == 0, "the pool is full");
}

static void use_spare(offset *where)
{
	*where = map->spare.off;
	persist(where, sizeof(*where));
	map->spare.off = 0;
	persist(&map->spare.off, sizeof(map->spare.off));
}

static void begin(uint64_t count)
{
	make_spare(count);
	use_spare(&map->next);
}

void hash_resize(uint64_t count)
{
	if (!map->next && count >= BUCKETS_MIN && count <= BUCKETS_MAX && count != buckets()->count)
		begin(count);
}

void hash_grow_if_full(void)
{
	uint64_t count = buckets()->count;
	if (map->next || map->count <= GROW_LOAD * count || 2 * count > BUCKETS_MAX)
		return;
	begin(2 * count);
	if (PLANTED(25))
		pmemobj_drain(pool); // bug 25: PF0502 the fence has nothing to wait for
}

void hash_shrink_if_empty(void)
{
	uint64_t count = buckets()->count;
	if (map->next || SHRINK_LOAD * map->count >= count || count / 2 < BUCKETS_MIN)
		return;
	make_spare(count / 2);
	map->next = map->spare.off;
	persist(&map->next, sizeof(map->next));
	map->spare.off = 0; // bug 29: PF0101, PF0504 the spare array is in use, and may become spare again
	if (!PLANTED(29))
		persist(&map->spare.off, sizeof(map->spare.off));
}

/* Moves all entries of the next bucket to the new array. */
static void move_bucket(void)
{
	struct buckets *next = at(map->next);
	tx_begin();
	offset *from = &buckets()->heads[map->moved];
	uint64_t length = 0;
	while (*from) {
		offset here = *from;
		struct entry *entry = at(here);
		offset *to = &next->heads[entry->key % next->count];
		tx_own(from, sizeof(*from));
		*from = entry->next;
		if (!(PLANTED(27) && length > 0))
			tx_own(&entry->next, sizeof(entry->next));
		entry->next = *to; // bug 27: PF0304 only the first entry of a moved chain is added
		tx_own(to, sizeof(*to));
		*to = here;
		length++;
	}
	if (!(PLANTED(26) && length == 1))
		tx_own(&map->moved, sizeof(map->moved));
	map->moved++; // bug 26: PF0304 a single entry is moved, and the progress is not added
	tx_commit();
}

static void finish(void)
{
	offset old = map->buckets;
	tx_begin();
	tx_own(&map->buckets, sizeof(map->buckets) + sizeof(map->next) + sizeof(map->moved));
	map->buckets = map->next;
	if (PLANTED(28))
		tx_add(&map->next, sizeof(map->next)); // bug 28: PF0506 the links were already added together
	map->next = 0;
	map->moved = 0;
	tx_free(old);
	tx_commit();
}

void hash_resize_step(void)
{
	if (!map->next)
		return;
	if (map->moved < buckets()->count)
		move_bucket();
	if (map->moved == buckets()->count)
		finish();
}

/* The array is already in use, or nothing points to it. */
static void recover_spare(void)
{
	if (OID_IS_NULL(map->spare))
		return;
	if (map->spare.off == map->next) {
		map->spare.off = 0; // bug 31: PF0101, PF0504 the repair of a started resize is not made durable
		if (!PLANTED(31))
			persist(&map->spare.off, sizeof(map->spare.off));
	} else if (map->spare.off == map->buckets) {
		map->spare.off = 0;
		persist(&map->spare.off, sizeof(map->spare.off));
	} else {
		pmemobj_free(&map->spare);
	}
}

static void grow_at_open(void)
{
	uint64_t count = buckets()->count;
	if (map->count <= GROW_LOAD_AT_OPEN * count || 2 * count > BUCKETS_MAX)
		return;
	begin(2 * count);
	while (map->next)
		hash_resize_step();
	tx_begin();
	if (!PLANTED(33))
		tx_own(&map->grown_at_open, sizeof(map->grown_at_open));
	map->grown_at_open++; // bug 33: PF0304 a full map grows when it is opened, and the counter of that is not added
	tx_commit();
}

void hash_resize_recover(void)
{
	recover_spare();
	if (!map->buckets) {
		make_spare(BUCKETS_MIN);
		use_spare(&map->buckets);
	}
	while (map->next)
		hash_resize_step();
	grow_at_open();
}
