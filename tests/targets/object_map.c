/*
 * A hash map in libpmemobj, changed in transactions. Arguments: pool, threads, operations per thread. Every
 * thread has its own keys, so the final content of the map is known.
 */
#include <libpmemobj.h>
#include <pthread.h>
#include <stdlib.h>

#include "pool.h"

enum { BUCKETS = 256, KEYS = 200 };

POBJ_LAYOUT_BEGIN(map);
POBJ_LAYOUT_ROOT(map, struct root);
POBJ_LAYOUT_TOID(map, struct entry);
POBJ_LAYOUT_END(map);

struct entry {
	uint64_t key;
	uint64_t value;
	TOID(struct entry) next;
	char text[40];
};

struct bucket {
	PMEMmutex lock;
	TOID(struct entry) first;
};

struct root {
	struct bucket buckets[BUCKETS];
};

static PMEMobjpool *objects;
static TOID(struct root) root;
static int operations;

static struct bucket *bucket_of(uint64_t key)
{
	return &D_RW(root)->buckets[key * 2654435761 % BUCKETS];
}

static void insert(uint64_t key, uint64_t value)
{
	struct bucket *bucket = bucket_of(key);
	TX_BEGIN_PARAM(objects, TX_PARAM_MUTEX, &bucket->lock, TX_PARAM_NONE)
	{
		TOID(struct entry) at = bucket->first;
		while (!TOID_IS_NULL(at) && D_RO(at)->key != key)
			at = D_RO(at)->next;
		if (TOID_IS_NULL(at)) {
			at = TX_ZNEW(struct entry);
			D_RW(at)->key = key;
			D_RW(at)->next = bucket->first;
			TX_ADD_DIRECT(&bucket->first);
			bucket->first = at;
		} else {
			TX_ADD(at);
		}
		D_RW(at)->value = value;
		snprintf(D_RW(at)->text, sizeof(D_RW(at)->text), "value %lu", value);
	}
	TX_ONABORT
	{
		exit(96);
	}
	TX_END
}

static void delete(uint64_t key)
{
	struct bucket *bucket = bucket_of(key);
	TX_BEGIN_PARAM(objects, TX_PARAM_MUTEX, &bucket->lock, TX_PARAM_NONE)
	{
		TOID(struct entry) *link = &bucket->first;
		while (!TOID_IS_NULL(*link) && D_RO(*link)->key != key)
			link = &D_RW(*link)->next;
		if (!TOID_IS_NULL(*link)) {
			TOID(struct entry) gone = *link;
			TX_ADD_DIRECT(link);
			*link = D_RO(gone)->next;
			TX_FREE(gone);
		}
	}
	TX_END
}

/* An aborted transaction leaves nothing behind. */
static void give_up(uint64_t key)
{
	struct bucket *bucket = bucket_of(key);
	TX_BEGIN_PARAM(objects, TX_PARAM_MUTEX, &bucket->lock, TX_PARAM_NONE)
	{
		TX_ADD_DIRECT(&bucket->first);
		bucket->first = TX_ZNEW(struct entry);
		pmemobj_tx_abort(1);
	}
	TX_END
}

static void *work(void *number)
{
	uint64_t base = (uint64_t)(long)number * KEYS;
	for (uint64_t round = 0; round < (uint64_t)operations; round++) {
		uint64_t key = base + round * 7 % KEYS;
		if (round % 10 == 9)
			give_up(key);
		else if (round % 4 == 3)
			delete(key);
		else
			insert(key, round);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	REQUIRE(argc == 4);
	long threads = atol(argv[2]);
	operations = atoi(argv[3]);
	objects = pmemobj_create(argv[1], POBJ_LAYOUT_NAME(map), 2 * PMEMOBJ_MIN_POOL, 0600);
	REQUIRE(objects != NULL);
	root = POBJ_ROOT(objects, struct root);
	if (threads == 1) {
		work(NULL);
	} else {
		pthread_t handles[16];
		for (long at = 0; at < threads; at++)
			REQUIRE(pthread_create(&handles[at], NULL, work, (void *)at) == 0);
		for (long at = 0; at < threads; at++)
			REQUIRE(pthread_join(handles[at], NULL) == 0);
	}
	uint64_t count = 0, sum = 0;
	for (int at = 0; at < BUCKETS; at++) {
		TOID(struct entry) entry = D_RO(root)->buckets[at].first;
		for (; !TOID_IS_NULL(entry); entry = D_RO(entry)->next) {
			count++;
			sum += D_RO(entry)->key * (D_RO(entry)->value + 1);
		}
	}
	printf("%lu %lu\n", count, sum);
	pmemobj_close(objects);
	REQUIRE(pmemobj_check(argv[1], POBJ_LAYOUT_NAME(map)) == 1);
	return 0;
}
