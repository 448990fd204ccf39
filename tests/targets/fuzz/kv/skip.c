/*
 * A skip list without transactions. A tower is created or freed in a separate slot; a redo log links or unlinks
 * it together with that slot and the count. The height of a tower depends on its key.
 */
#include "log.h"
#include "planted.h"
#include "structure.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LEVELS = 4, LINE_BYTES = 64 };

struct tower {
	uint64_t key;
	uint64_t value;
	uint64_t height;
	offset next[LEVELS];
};

struct list {
	uint64_t levels;
	offset heads[LEVELS];
	uint64_t count;
	char apart[LINE_BYTES];
	/* A tower that is not yet, or no longer, part of the list. */
	PMEMoid spare;
	struct log log;
};

static struct list *list;

/* The links that contain, or would contain, a key, one for each level. */
struct path {
	offset *slots[LEVELS];
};

static struct tower *find(uint64_t key, struct path *path)
{
	offset *next = list->heads;
	for (int level = LEVELS - 1; level >= 0; level--) {
		while (next[level] && ((struct tower *)at(next[level]))->key < key)
			next = ((struct tower *)at(next[level]))->next;
		path->slots[level] = &next[level];
	}
	struct tower *tower = next[0] ? at(next[0]) : NULL;
	return tower && tower->key == key ? tower : NULL;
}

/* Every second key is on the second level, every fourth on the third. */
static uint64_t height_of(uint64_t key)
{
	uint64_t height = 1;
	for (; height < LEVELS && key % 2 == 0; key /= 2)
		height++;
	return height;
}

static int construct(PMEMobjpool *in, void *object, void *argument)
{
	(void)in;
	memcpy(object, argument, sizeof(struct tower));
	persist(object, sizeof(struct tower));
	return 0;
}

static void insert(uint64_t key, uint64_t value, const struct path *path)
{
	struct tower tower = {.key = key, .value = value, .height = height_of(key)};
	for (uint64_t level = 0; level < tower.height; level++)
		tower.next[level] = *path->slots[level];
	require(pmemobj_alloc(pool, &list->spare, sizeof(tower), 5, construct, &tower) == 0, "the pool is full");
	log_begin(&list->log);
	for (uint64_t level = 0; level < tower.height; level++)
		log_word(&list->log, path->slots[level], list->spare.off);
	log_word(&list->log, &list->count, list->count + 1);
	log_word(&list->log, &list->spare.off, 0);
	log_commit(&list->log);
}

static void skip_put(const char *text, uint64_t value)
{
	struct path path;
	uint64_t key = number(text);
	struct tower *tower = find(key, &path);
	if (!tower) {
		insert(key, value, &path);
		return;
	}
	tower->value = value; // bug 38: PF0101, PF0504 a value is overwritten, and something else is flushed
	if (PLANTED(38))
		persist(&list->count, sizeof(list->count)); // bug 38: PF0501
	else
		persist(&tower->value, sizeof(tower->value));
}

static int skip_get(const char *text, uint64_t *value)
{
	struct path path;
	struct tower *tower = find(number(text), &path);
	if (tower)
		*value = tower->value;
	return tower != NULL;
}

static void take_out(struct tower *tower, const struct path *path)
{
	log_begin(&list->log);
	for (uint64_t level = 0; level < tower->height; level++)
		log_word(&list->log, path->slots[level], tower->next[level]);
	log_word(&list->log, &list->count, list->count - 1);
	log_word(&list->log, &list->spare.pool_uuid_lo, root->skip.pool_uuid_lo);
	log_word(&list->log, &list->spare.off, link_to(tower));
	log_commit(&list->log);
	pmemobj_free(&list->spare);
}

static int skip_remove(const char *text)
{
	struct path path;
	struct tower *tower = find(number(text), &path);
	if (tower)
		take_out(tower, &path);
	return tower != NULL;
}

static uint64_t skip_drop(const char *first, const char *last)
{
	struct path path;
	uint64_t removed = 0;
	find(number(first), &path);
	while (*path.slots[0]) {
		struct tower *tower = at(*path.slots[0]);
		if (tower->key > number(last))
			break;
		take_out(tower, &path);
		removed++;
	}
	if (PLANTED(40) && removed >= 3)
		pmemobj_drain(pool); // bug 40: PF0502 the fence has nothing left to wait for
	return removed;
}

static void skip_walk(void (*visit)(const char *, uint64_t))
{
	for (offset it = list->heads[0]; it; it = ((struct tower *)at(it))->next[0]) {
		const struct tower *tower = at(it);
		char key[24];
		snprintf(key, sizeof(key), "%" PRIu64, tower->key);
		visit(key, tower->value);
	}
}

static uint64_t skip_count(void)
{
	return list->count;
}

/* All towers of a level are also on the level below, in order. */
static void check_level(int level)
{
	offset below = level ? list->heads[level - 1] : 0;
	uint64_t length = 0, last = 0;
	for (offset it = list->heads[level]; it;) {
		require(link_is_possible(it, sizeof(struct tower)), "skip: a link leads out of the pool");
		const struct tower *tower = at(it);
		require(tower->height == height_of(tower->key), "skip: a tower has another height");
		require(tower->height > (uint64_t)level, "skip: a tower is not so high");
		require(length == 0 || tower->key > last, "skip: towers are not in order");
		require(++length <= CAPACITY + 1, "skip: a level has no end");
		last = tower->key;
		while (level && below != it) {
			require(below != 0, "skip: a tower is not on the level below");
			below = ((struct tower *)at(below))->next[level - 1];
		}
		it = tower->next[level];
	}
	require(level || length == list->count, "skip: the count is wrong");
}

static void skip_check(void)
{
	for (int level = 0; level < LEVELS; level++)
		check_level(level);
	require(list->spare.off == 0 && !list->log.valid, "skip: something was not finished");
}

static int construct_list(PMEMobjpool *in, void *object, void *argument)
{
	(void)in;
	(void)argument;
	struct list *fresh = object;
	memset(fresh, 0, sizeof(*fresh));
	fresh->levels = LEVELS;
	persist(fresh, sizeof(*fresh));
	return 0;
}

static void create(void)
{
	if (PLANTED(39)) {
		require(pmemobj_zalloc(pool, &root->skip, sizeof(struct list), 6) == 0, "the pool is full"); // bug 39: PF0301 a list is published before it is complete
		struct list *fresh = pmemobj_direct(root->skip);
		fresh->levels = LEVELS; // bug 39: PF0301
		persist(&fresh->levels, sizeof(fresh->levels));
	} else {
		require(pmemobj_alloc(pool, &root->skip, sizeof(struct list), 6, construct_list, NULL) == 0,
			"the pool is full");
	}
}

static void skip_open(void)
{
	if (OID_IS_NULL(root->skip))
		create();
	list = pmemobj_direct(root->skip);
	require(list->levels == LEVELS, "skip: made by another program");
	log_recover(&list->log);
	if (!OID_IS_NULL(list->spare)) {
		pmemobj_free(&list->spare);
		if (PLANTED(37))
			persist(&list->spare, sizeof(list->spare)); // bug 37: PF0501 the slot is already durable
	}
}

const struct structure skip = {
	.name = "skip",
	.open = skip_open,
	.put = skip_put,
	.get = skip_get,
	.remove = skip_remove,
	.drop = skip_drop,
	.walk = skip_walk,
	.count = skip_count,
	.check = skip_check,
};
