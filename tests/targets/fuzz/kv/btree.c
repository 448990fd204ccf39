/*
 * A B-tree with one to three keys in a node, changed in transactions. Nodes are split and filled on the way
 * down, so that nothing has to be done on the way up.
 */
#include "planted.h"
#include "structure.h"
#include "transaction.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { KEYS = 3, HALF = 1, HEIGHT_MAX = 16 };

struct item {
	uint64_t key, value;
};

struct node {
	uint32_t count;
	uint32_t is_leaf;
	struct item items[KEYS];
	offset children[KEYS + 1];
};

struct tree {
	offset top;
	uint64_t height;
	uint64_t count;
	uint64_t order;
};

static struct tree *tree;

static void own(struct node *node)
{
	tx_own(node, sizeof(*node));
}

static struct node *child(const struct node *node, unsigned index)
{
	return at(node->children[index]);
}

/* The first item that is not less than the key. */
static unsigned position(const struct node *node, uint64_t key)
{
	unsigned index = 0;
	while (index < node->count && node->items[index].key < key)
		index++;
	return index;
}

static int has(const struct node *node, unsigned index, uint64_t key)
{
	return index < node->count && node->items[index].key == key;
}

static struct item *find(uint64_t key, struct node **holder)
{
	struct node *node = at(tree->top);
	for (;;) {
		unsigned index = position(node, key);
		*holder = node;
		if (has(node, index, key))
			return &node->items[index];
		if (node->is_leaf)
			return NULL;
		node = child(node, index);
	}
}

/* Makes room for an item, and for a child after it. The node belongs to the transaction. */
static void open_gap(struct node *node, unsigned index)
{
	unsigned behind = node->count - index;
	memmove(&node->items[index + 1], &node->items[index], behind * sizeof(*node->items));
	if (!node->is_leaf)
		memmove(&node->children[index + 2], &node->children[index + 1],
			behind * sizeof(*node->children));
	node->count++;
}

/* Removes an item, and the child after it. The node belongs to the transaction. */
static void close_gap(struct node *node, unsigned index)
{
	unsigned behind = node->count - index - 1;
	memmove(&node->items[index], &node->items[index + 1], behind * sizeof(*node->items));
	if (!node->is_leaf)
		memmove(&node->children[index + 1], &node->children[index + 2],
			behind * sizeof(*node->children));
	node->count--; // bug 8: PF0304 a node that merges its last two children is not added
}

/* Splits a full child; the parent is not full. */
static void split(struct node *parent, unsigned index)
{
	int is_below_new_top = parent->count == 0;
	struct node *left = child(parent, index);
	struct node *right = tx_new(sizeof(*right));
	right->is_leaf = left->is_leaf;
	right->count = HALF;
	right->items[0] = left->items[KEYS - 1];
	if (!left->is_leaf)
		memcpy(right->children, &left->children[HALF + 1], (HALF + 1) * sizeof(offset));
	own(parent);
	if (PLANTED(3) && !left->is_leaf)
		tx_add(parent, sizeof(*parent)); // bug 3: PF0506 parents of inner nodes are added twice
	open_gap(parent, index);
	parent->items[index] = left->items[HALF];
	parent->children[index + 1] = link_to(right);
	if (!(PLANTED(2) && !is_below_new_top))
		own(left);
	left->count = HALF; // bug 2: PF0304 a node that is split below the root is not added
}

static void split_top(void)
{
	struct node *top = tx_new(sizeof(*top));
	top->children[0] = tree->top;
	tx_own(&tree->top, sizeof(tree->top));
	tree->top = link_to(top);
	if (!PLANTED(4))
		tx_own(&tree->height, sizeof(tree->height));
	tree->height++; // bug 4: PF0304 the tree grows in height, and its height is not added
	split(top, 0);
}

static void insert(uint64_t key, uint64_t value)
{
	struct node *node = at(tree->top);
	if (node->count == KEYS) {
		split_top();
		node = at(tree->top);
	}
	while (!node->is_leaf) {
		unsigned index = position(node, key);
		if (child(node, index)->count == KEYS) {
			split(node, index);
			index = position(node, key);
		}
		node = child(node, index);
	}
	unsigned index = position(node, key);
	own(node);
	open_gap(node, index);
	node->items[index].key = key;
	node->items[index].value = value;
	tx_own(&tree->count, sizeof(tree->count));
	tree->count++;
}

static void btree_put(const char *text, uint64_t value)
{
	struct node *holder;
	uint64_t key = number(text);
	struct item *item = find(key, &holder);
	tx_begin();
	if (!item) {
		insert(key, value);
	} else {
		if (!(PLANTED(1) && !holder->is_leaf))
			own(holder);
		item->value = value; // bug 1: PF0304 a changed value in an inner node is not added
	}
	tx_commit();
}

static int btree_get(const char *text, uint64_t *value)
{
	struct node *holder;
	struct item *item = find(number(text), &holder);
	if (item)
		*value = item->value;
	return item != NULL;
}

/* The last item of the left sibling moves up to the parent, and the parent's item moves down. */
static void rotate_from_left(struct node *parent, unsigned index)
{
	struct node *left = child(parent, index - 1);
	struct node *node = child(parent, index);
	if (PLANTED(6) && !node->is_leaf) {
		/* The moved part, without the slot that becomes free. */
		tx_add(node, offsetof(struct node, children));
		tx_add(&node->children[1], (node->count + 1) * sizeof(offset));
	} else {
		own(node);
	}
	memmove(&node->items[1], &node->items[0], node->count * sizeof(*node->items));
	if (!node->is_leaf) {
		memmove(&node->children[1], &node->children[0], (node->count + 1) * sizeof(offset));
		node->children[0] = left->children[left->count]; // bug 6: PF0304 too little of an inner node is added
	}
	node->count++;
	node->items[0] = parent->items[index - 1];
	if (PLANTED(5) && node->is_leaf)
		tx_add(&parent->items[index], sizeof(*parent->items)); // bug 5: PF0506, PF0507
	else
		tx_own(&parent->items[index - 1], sizeof(*parent->items));
	parent->items[index - 1] = left->items[left->count - 1]; // bug 5: PF0304 the next item of the parent is added
	own(left);
	left->count--;
}

static void rotate_from_right(struct node *parent, unsigned index)
{
	struct node *node = child(parent, index);
	struct node *right = child(parent, index + 1);
	own(node);
	own(right);
	node->items[node->count] = parent->items[index];
	if (!node->is_leaf)
		node->children[node->count + 1] = right->children[0];
	node->count++;
	own(parent);
	parent->items[index] = right->items[0];
	if (PLANTED(7))
		tx_add(right, sizeof(*right)); // bug 7: PF0506 the sibling is added twice
	memmove(&right->items[0], &right->items[1], (right->count - 1) * sizeof(*right->items));
	if (!right->is_leaf)
		memmove(&right->children[0], &right->children[1], right->count * sizeof(offset));
	right->count--;
}

/* Two children with one item each and the item between them become one node. */
static void merge(struct node *parent, unsigned index)
{
	struct node *left = child(parent, index);
	struct node *right = child(parent, index + 1);
	own(left);
	left->items[left->count] = parent->items[index];
	memcpy(&left->items[left->count + 1], right->items, right->count * sizeof(*right->items));
	if (!left->is_leaf)
		memcpy(&left->children[left->count + 1], right->children, (right->count + 1) * sizeof(offset));
	left->count += right->count + 1;
	tx_free(link_to(right));
	if (!(PLANTED(8) && parent->count > 1 && index == parent->count - 1))
		own(parent);
	close_gap(parent, index);
}

/* Makes sure that a child has an item to spare; returns the child to continue with. */
static struct node *fill(struct node *parent, unsigned index)
{
	struct node *node = child(parent, index);
	if (node->count > HALF)
		return node;
	if (index > 0 && child(parent, index - 1)->count > HALF) {
		rotate_from_left(parent, index);
		return node;
	}
	if (index < parent->count && child(parent, index + 1)->count > HALF) {
		rotate_from_right(parent, index);
		return node;
	}
	if (index == parent->count)
		index--;
	merge(parent, index);
	return child(parent, index);
}

static void remove_below(struct node *node, uint64_t key);

/* Removes an item of an inner node: an item from below replaces it. */
static void remove_inner(struct node *node, unsigned index)
{
	uint64_t key = node->items[index].key;
	struct node *left = child(node, index);
	struct node *right = child(node, index + 1);
	struct node *leaf;
	if (left->count > HALF) {
		for (leaf = left; !leaf->is_leaf; leaf = child(leaf, leaf->count))
			;
		struct item item = leaf->items[leaf->count - 1];
		if (PLANTED(11))
			tx_add(&tree->order, sizeof(tree->order)); // bug 11: PF0506, PF0507 a constant field is added
		own(node);
		node->items[index] = item;
		remove_below(left, item.key);
	} else if (right->count > HALF) {
		for (leaf = right; !leaf->is_leaf; leaf = child(leaf, 0))
			;
		struct item item = leaf->items[0];
		if (!PLANTED(10))
			own(node);
		node->items[index] = item; // bug 10: PF0304 an item is replaced by the next one without being added
		remove_below(right, item.key);
	} else {
		merge(node, index);
		remove_below(left, key);
	}
}

/* Removes an existing key from a node with an item to spare. */
static void remove_below(struct node *node, uint64_t key)
{
	for (;;) {
		unsigned index = position(node, key);
		if (node->is_leaf) {
			own(node);
			close_gap(node, index);
			return;
		}
		if (has(node, index, key)) {
			remove_inner(node, index);
			return;
		}
		node = fill(node, index);
	}
}

/* Removes an existing key; the caller updates the count. */
static void remove_key(uint64_t key)
{
	remove_below(at(tree->top), key);
	struct node *top = at(tree->top);
	if (top->count > 0 || top->is_leaf)
		return;
	if (!PLANTED(9))
		tx_own(&tree->top, sizeof(tree->top));
	offset old = tree->top;
	tree->top = top->children[0]; // bug 9: PF0304 the tree shrinks in height, and its root is not added
	tx_own(&tree->height, sizeof(tree->height));
	tree->height--;
	tx_free(old);
}

static int btree_remove(const char *text)
{
	struct node *holder;
	uint64_t key = number(text);
	if (!find(key, &holder))
		return 0;
	tx_begin();
	remove_key(key);
	tx_own(&tree->count, sizeof(tree->count));
	tree->count--;
	tx_commit();
	return 1;
}

/* The smallest key that is at least this one. */
static int next_key(uint64_t from, uint64_t *key)
{
	int is_found = 0;
	const struct node *node = at(tree->top);
	for (;;) {
		unsigned index = position(node, from);
		if (index < node->count) {
			*key = node->items[index].key;
			is_found = 1;
		}
		if (node->is_leaf)
			return is_found;
		node = child(node, index);
	}
}

static uint64_t btree_drop(const char *first, const char *last)
{
	uint64_t key, removed = 0;
	if (!next_key(number(first), &key) || key > number(last))
		return 0;
	tx_begin();
	do {
		remove_key(key);
		removed++;
	} while (next_key(number(first), &key) && key <= number(last));
	if (!(PLANTED(12) && removed >= 3))
		tx_own(&tree->count, sizeof(tree->count));
	tree->count -= removed; // bug 12: PF0304 three keys are removed, and their count is not added
	tx_commit();
	return removed;
}

static void walk_node(const struct node *node, void (*visit)(const char *, uint64_t))
{
	for (unsigned i = 0; i < node->count; i++) {
		char key[24];
		if (!node->is_leaf)
			walk_node(child(node, i), visit);
		snprintf(key, sizeof(key), "%" PRIu64, node->items[i].key);
		visit(key, node->items[i].value);
	}
	if (!node->is_leaf)
		walk_node(child(node, node->count), visit);
}

static void btree_walk(void (*visit)(const char *, uint64_t))
{
	walk_node(at(tree->top), visit);
}

static uint64_t btree_count(void)
{
	return tree->count;
}

/* Keys lie between two bounds, if these exist. */
static uint64_t check_node(offset where, uint64_t depth, const uint64_t *above, const uint64_t *below)
{
	require(link_is_possible(where, sizeof(struct node)), "btree: a link leads out of the pool");
	const struct node *node = at(where);
	int is_top = where == tree->top;
	require(node->count <= KEYS && (is_top || node->count >= HALF), "btree: a node is too full or too empty");
	require(!node->is_leaf == (depth < tree->height), "btree: a leaf is at another height");
	uint64_t sum = node->count;
	for (unsigned i = 0; i < node->count; i++) {
		uint64_t key = node->items[i].key;
		const uint64_t *before = i ? &node->items[i - 1].key : above;
		require(!before || key > *before, "btree: keys are not in order");
		require(!below || key < *below, "btree: a key is on the wrong side");
	}
	for (unsigned i = 0; !node->is_leaf && i <= node->count; i++) {
		const uint64_t *before = i ? &node->items[i - 1].key : above;
		const uint64_t *behind = i < node->count ? &node->items[i].key : below;
		sum += check_node(node->children[i], depth + 1, before, behind);
	}
	return sum;
}

static void btree_check(void)
{
	require(tree->order == KEYS, "btree: made by another program");
	require(tree->height >= 1 && tree->height <= HEIGHT_MAX, "btree: the height is impossible");
	require(check_node(tree->top, 1, NULL, NULL) == tree->count, "btree: the count is wrong");
}

static void btree_open(void)
{
	if (OID_IS_NULL(root->btree)) {
		tx_begin();
		struct tree *fresh = tx_new(sizeof(*fresh));
		struct node *top = tx_new(sizeof(*top));
		top->is_leaf = 1;
		fresh->top = link_to(top);
		fresh->height = 1;
		fresh->order = KEYS;
		tx_own(&root->btree, sizeof(root->btree));
		root->btree = pmemobj_oid(fresh);
		tx_commit();
	}
	tree = pmemobj_direct(root->btree);
}

const struct structure btree = {
	.name = "btree",
	.open = btree_open,
	.put = btree_put,
	.get = btree_get,
	.remove = btree_remove,
	.drop = btree_drop,
	.walk = btree_walk,
	.count = btree_count,
	.check = btree_check,
};
