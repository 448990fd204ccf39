/*
 * A B+-tree whose nodes are sorted arrays, changed in place (based on the ideas of FAST and FAIR).
 *
 * An entry is a key and a word: a value in a leaf, a child in the levels above. An entry whose word equals
 * that of its left neighbour is ignored, and the first entry without a word ends the node. So entries can be
 * shifted to the right one store after the other, first the word, then the key: whatever prefix of these
 * stores a crash leaves, at most one entry is duplicated and none is missing. The stores to a line become
 * durable in order; a line is made durable before the next one is changed. (Values of neighbours must differ.
 * In an index they are addresses of records.)
 *
 * A split creates a right sibling with the upper half, makes it durable, links it, truncates the node, and
 * then updates the level above. Every node stores its lowest key, so a search that ends too far to the left
 * continues to the sibling: an interrupted split costs time, but no keys. Recovery completes it.
 *
 * Planted bugs:
 *   1  constructor: the header of a node is not flushed
 *   2  split: one fence for the new node and for the link to it
 *   3  split: no fence between linking the sibling and truncating the node
 *   4  shifting: a line is not made durable before the next one is changed
 */
#include "index.h"

#define SLOTS 8
/* The last slot always ends the node. */
#define ENTRIES_MAX (SLOTS - 1)
#define LEVELS_MAX 16UL
/* The word before the first entry of a leaf: no value. */
#define NO_CHILD 1UL

struct entry {
	uint64_t key;
	uint64_t word;
};

struct node {
	/* Leaves are level 0. */
	LINE uint64_t level;
	/* All keys of this node, and of nodes to the right of it, are at least this. */
	uint64_t lowest;
	struct node *sibling;
	/* The child for keys that are less than the key of the first entry. */
	uint64_t leftmost;
	LINE struct entry entries[SLOTS];
};

struct index {
	LINE struct node *top;
};

static struct index *index_root;

static uint64_t word_before(const struct node *node, int at)
{
	return at ? node->entries[at - 1].word : node->leftmost;
}

/* The number of entries up to the end, including ignored ones. */
static int entry_count(const struct node *node)
{
	int count = 0;
	while (node->entries[count].word) {
		count++;
		INTACT(count < SLOTS);
	}
	return count;
}

static bool entry_counts(const struct node *node, int at)
{
	return node->entries[at].word != word_before(node, at);
}

static bool is_line_begin(const struct entry *entry)
{
	return (uintptr_t)entry % LINE_BYTES == 0;
}

static bool is_line_end(const struct entry *entry)
{
	return is_line_begin(entry + 1);
}

static struct node *make_node(uint64_t level, uint64_t lowest, uint64_t leftmost)
{
	struct node *node = heap_allocate(sizeof(*node));
	memset(node, 0, sizeof(*node));
	node->level = level;
	node->lowest = lowest;
	node->leftmost = leftmost;
	return node;
}

static void flush_node(const struct node *node)
{
#if BUG != 1
	flush(node, offsetof(struct node, entries));
#endif
	flush(node->entries, sizeof(node->entries));
}

static void make_index(void)
{
	struct index *index = heap_allocate(sizeof(*index));
	index->top = make_node(0, 0, NO_CHILD);
	flush_node(index->top);
	flush(index, sizeof(*index));
	fence();
	STORE(heap->root, index);
	persist(&heap->root, sizeof(heap->root));
}

/* The node of a level, at or to the right of this one, that a key belongs to. */
static struct node *to_the_right(struct node *node, uint64_t key)
{
	for (;;) {
		struct node *right = node->sibling;
		INTACT(!right || heap_holds(right, sizeof(*right)));
		if (!right || key < right->lowest)
			return node;
		node = right;
	}
}

static struct node *child_for(const struct node *node, uint64_t key)
{
	uint64_t child = node->leftmost;
	for (int i = 0; node->entries[i].word; i++) {
		INTACT(i < ENTRIES_MAX);
		if (!entry_counts(node, i))
			continue;
		if (node->entries[i].key > key)
			break;
		child = node->entries[i].word;
	}
	INTACT(heap_holds((void *)child, sizeof(*node)));
	return (struct node *)child;
}

/* The node of a level that a key belongs to. */
static struct node *descend(uint64_t key, uint64_t level)
{
	struct node *node = to_the_right(index_root->top, key);
	while (node->level > level) {
		struct node *child = child_for(node, key);
		INTACT(child->level == node->level - 1);
		node = to_the_right(child, key);
	}
	return node;
}

/* Inserts an entry into a node that has room for it and no entry with this key. */
static void shift_in(struct node *node, uint64_t key, uint64_t word)
{
	struct entry *entries = node->entries;
	int count = entry_count(node), at = count;
	INTACT(count < ENTRIES_MAX);
	/* A split leaves entries after the end. */
	if (entries[count + 1].word) {
		STORE(entries[count + 1].word, 0);
		if (is_line_end(&entries[count]))
			persist(&entries[count + 1], sizeof(*entries));
	}
	for (; at > 0 && entries[at - 1].key > key; at--) {
		STORE(entries[at].word, entries[at - 1].word);
		STORE(entries[at].key, entries[at - 1].key);
#if BUG != 4
		if (is_line_begin(&entries[at]))
			persist(&entries[at], sizeof(*entries));
#else
		if (is_line_begin(&entries[at]))
			flush(&entries[at], sizeof(*entries));
#endif
	}
	if (at < count)
		STORE(entries[at].word, word_before(node, at));
	STORE(entries[at].key, key);
	STORE(entries[at].word, word);
	persist(&entries[at], sizeof(*entries));
}

/* Removes an ignored entry by shifting the others to the left. */
static void shift_out(struct node *node, int at)
{
	struct entry *entries = node->entries;
	for (; entries[at].word; at++) {
		STORE(entries[at].key, entries[at + 1].key);
		STORE(entries[at].word, entries[at + 1].word);
		if (is_line_end(&entries[at]))
			persist(&entries[at], sizeof(*entries));
	}
	persist(&entries[at ? at - 1 : 0], sizeof(*entries));
}

static void tell_level_above(struct node *right);

/* Truncates a node where its sibling begins. */
static void cut(struct node *node, int at)
{
	STORE(node->entries[at].word, 0);
	persist(&node->entries[at], sizeof(struct entry));
}

static void split(struct node *node)
{
	int count = entry_count(node), middle = count / 2;
	const struct entry *entries = node->entries;
	bool is_leaf = node->level == 0;
	uint64_t leftmost = is_leaf ? NO_CHILD : entries[middle].word;
	struct node *right = make_node(node->level, entries[middle].key, leftmost);
	int first = is_leaf ? middle : middle + 1;
	memcpy(right->entries, &entries[first], (size_t)(count - first) * sizeof(*entries));
	right->sibling = node->sibling;
	flush_node(right);
#if BUG != 2
	fence();
#endif
	STORE(node->sibling, right);
#if BUG != 3
	persist(&node->sibling, sizeof(node->sibling));
#else
	flush(&node->sibling, sizeof(node->sibling));
#endif
	cut(node, middle);
	tell_level_above(right);
}

static void grow_upwards(struct node *right)
{
	struct node *left = index_root->top;
	struct node *top = make_node(left->level + 1, 0, (uint64_t)left);
	top->entries[0].key = right->lowest;
	top->entries[0].word = (uint64_t)right;
	flush_node(top);
	fence();
	STORE(index_root->top, top);
	persist(&index_root->top, sizeof(index_root->top));
}

/* Adds a node, which is already linked in its level, to the level above. */
static void tell_level_above(struct node *right)
{
	if (index_root->top->level == right->level) {
		grow_upwards(right);
		return;
	}
	for (;;) {
		struct node *parent = descend(right->lowest, right->level + 1);
		if (entry_count(parent) < ENTRIES_MAX) {
			shift_in(parent, right->lowest, (uint64_t)right);
			return;
		}
		split(parent);
	}
}

static bool is_known_above(const struct node *node)
{
	if (index_root->top->level == node->level)
		return false;
	const struct node *parent = descend(node->lowest, node->level + 1);
	if (parent->leftmost == (uint64_t)node)
		return true;
	for (int i = 0; parent->entries[i].word; i++)
		if (parent->entries[i].word == (uint64_t)node)
			return true;
	return false;
}

/* Completes the effects of an interrupted insert on a node. */
static void repair_node(struct node *node)
{
	int count = entry_count(node);
	struct node *right = node->sibling;
	for (int i = 0; i < count; i++) {
		if (!entry_counts(node, i)) {
			shift_out(node, i);
			count--;
			i--;
		} else if (right && node->entries[i].key >= right->lowest) {
			cut(node, i);
			return;
		}
	}
}

/* From the top downwards, so that the path to a node is intact when the node is repaired. */
static void repair(void)
{
	INTACT(heap_holds(index_root->top, sizeof(struct node)));
	while (index_root->top->sibling) {
		INTACT(heap_holds(index_root->top->sibling, sizeof(struct node)));
		repair_node(index_root->top);
		grow_upwards(index_root->top->sibling);
	}
	struct node *first = index_root->top;
	INTACT(first->level < LEVELS_MAX);
	for (;;) {
		for (struct node *node = first; node; node = node->sibling) {
			INTACT(heap_holds(node, sizeof(*node)) && node->level == first->level);
			repair_node(node);
			if (node != first && !is_known_above(node))
				tell_level_above(node);
		}
		if (first->level == 0)
			return;
		struct node *child = (struct node *)first->leftmost;
		INTACT(heap_holds(child, sizeof(*child)) && child->level == first->level - 1);
		first = child;
	}
}

static void index_open(void)
{
	if (!heap->root)
		make_index();
	index_root = heap->root;
	repair();
}

/* The entry of a leaf with a key, or NULL. */
static struct entry *entry_of(struct node *leaf, uint64_t key)
{
	for (int i = 0; leaf->entries[i].word; i++)
		if (leaf->entries[i].key == key && entry_counts(leaf, i))
			return &leaf->entries[i];
	return NULL;
}

static bool index_find(uint64_t key, uint64_t *value)
{
	struct entry *entry = entry_of(descend(key, 0), key);
	if (entry)
		*value = entry->word;
	return entry;
}

static void index_insert(uint64_t key, uint64_t value)
{
	for (;;) {
		struct node *leaf = descend(key, 0);
		struct entry *entry = entry_of(leaf, key);
		if (entry) {
			STORE(entry->word, value);
			persist(entry, sizeof(*entry));
			return;
		}
		if (entry_count(leaf) < ENTRIES_MAX) {
			shift_in(leaf, key, value);
			return;
		}
		split(leaf);
	}
}

/* All nodes of a level: sorted, within their bounds, known above, and without duplicates. */
static void walk_level(struct node *first, visitor *visit)
{
	uint64_t least = 0;
	for (struct node *node = first; node; node = node->sibling) {
		INTACT(node->level == first->level);
		INTACT(node == first ? node->lowest == 0 : node->lowest >= least);
		INTACT(node == index_root->top || node == first || is_known_above(node));
		least = node->lowest;
		int count = entry_count(node);
		for (int i = 0; i < count; i++) {
			uint64_t key = node->entries[i].key;
			INTACT(entry_counts(node, i));
			INTACT(key >= least);
			INTACT(!node->sibling || key < node->sibling->lowest);
			least = key + 1;
			if (node->level == 0)
				visit(key, node->entries[i].word);
			else
				INTACT(((struct node *)node->entries[i].word)->lowest == key);
		}
	}
}

static void index_walk(visitor *visit)
{
	struct node *first = index_root->top;
	INTACT(!first->sibling);
	for (;;) {
		walk_level(first, visit);
		if (first->level == 0)
			return;
		first = (struct node *)first->leftmost;
	}
}

#include "judge.h"
