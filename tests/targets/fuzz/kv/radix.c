/*
 * A radix tree, changed in transactions: half a byte of the key for each step, and sequences without branches
 * in one node. Removed nodes wait in limbo until there are some of them, or until the pool is opened.
 */
#include "planted.h"
#include "structure.h"
#include "transaction.h"

#include <string.h>

enum { LETTERS = 16, DIGITS = 2 * LETTERS, BRANCHES = 16, LIMBO_MAX = 4 };

struct node {
	uint32_t length;
	uint32_t has_value;
	uint8_t digits[DIGITS];
	uint64_t value;
	uint64_t old_value;
	uint64_t updates;
	/* For a node in limbo, the next one. */
	offset limbo;
	offset children[BRANCHES];
};

struct tree {
	offset top;
	uint64_t count;
	offset limbo;
	uint64_t limbo_count;
};

/* A key in digits. Text that is too long is truncated. */
struct key {
	unsigned length;
	uint8_t digits[DIGITS];
};

/* The result of a search: the links on the way, and how many digits of the key they represent. */
struct place {
	offset *above;
	offset *slot;
	unsigned depth;
};

static struct tree *tree;

static void own(struct node *node)
{
	tx_own(node, sizeof(*node));
}

static void set_link(offset *slot, offset value)
{
	tx_own(slot, sizeof(*slot));
	*slot = value;
}

static struct key key_of(const char *text)
{
	struct key key = {.length = 0};
	for (unsigned i = 0; i < LETTERS && text[i]; i++) {
		key.digits[key.length++] = (uint8_t)text[i] >> 4;
		key.digits[key.length++] = (uint8_t)text[i] & 15;
	}
	return key;
}

static unsigned common_length(const struct node *node, const struct key *key, unsigned depth)
{
	unsigned length = 0;
	while (length < node->length && depth + length < key->length &&
	       node->digits[length] == key->digits[depth + length])
		length++;
	return length;
}

static unsigned child_count(const struct node *node, unsigned *last)
{
	unsigned count = 0;
	for (unsigned i = 0; i < BRANCHES; i++)
		if (node->children[i]) {
			*last = i;
			count++;
		}
	return count;
}

/* The node at a place does not begin like the key, or ends it, or has no child for it. */
static struct node *descend(const struct key *key, struct place *place)
{
	*place = (struct place){.above = NULL, .slot = &tree->top, .depth = 0};
	for (;;) {
		struct node *node = at(*place->slot);
		unsigned behind = place->depth + node->length;
		if (common_length(node, key, place->depth) < node->length || behind == key->length ||
		    !node->children[key->digits[behind]])
			return node;
		place->above = place->slot;
		place->slot = &node->children[key->digits[behind]];
		place->depth = behind + 1;
	}
}

static struct node *find(const struct key *key, struct place *place)
{
	struct node *node = descend(key, place);
	int is_there = common_length(node, key, place->depth) == node->length &&
		       place->depth + node->length == key->length && node->has_value;
	return is_there ? node : NULL;
}

static offset new_leaf(const struct key *key, unsigned depth, uint64_t value)
{
	struct node *leaf = tx_new(sizeof(*leaf));
	leaf->length = key->length - depth;
	memcpy(leaf->digits, &key->digits[depth], leaf->length);
	leaf->has_value = 1;
	leaf->value = value;
	return link_to(leaf);
}

/* A node and the key differ after some digits: a new node takes their common prefix. */
static void split(const struct place *place, const struct key *key, unsigned length, uint64_t value)
{
	struct node *node = at(*place->slot);
	struct node *middle = tx_new(sizeof(*middle));
	unsigned behind = place->depth + length;
	middle->length = length;
	memcpy(middle->digits, node->digits, length);
	middle->children[node->digits[length]] = *place->slot;
	if (behind == key->length) {
		if (PLANTED(15))
			tx_add(middle, sizeof(*middle)); // bug 15: PF0506 a new node is added
		middle->has_value = 1;
		middle->value = value;
	} else {
		middle->children[key->digits[behind]] = new_leaf(key, behind + 1, value);
	}
	unsigned rest = node->length - length - 1;
	if (PLANTED(14))
		tx_add(node, offsetof(struct node, digits));
	else
		own(node);
	node->length = rest;
	memmove(node->digits, &node->digits[length + 1], rest); // bug 14: PF0304 too little of a split node is added
	set_link(place->slot, link_to(middle));
}

static void insert(struct node *node, const struct place *place, const struct key *key, uint64_t value)
{
	unsigned length = common_length(node, key, place->depth);
	unsigned behind = place->depth + length;
	if (length < node->length) {
		split(place, key, length, value);
	} else if (behind == key->length) {
		own(node);
		node->has_value = 1;
		node->value = value;
		node->updates = 0;
	} else {
		offset leaf = new_leaf(key, behind + 1, value);
		offset *slot = &node->children[key->digits[behind]];
		if (!(PLANTED(13) && node != at(tree->top)))
			tx_own(slot, sizeof(*slot));
		*slot = leaf; // bug 13: PF0304 a link in a node below the root is not added
	}
	tx_own(&tree->count, sizeof(tree->count));
	tree->count++;
}

static void overwrite(struct node *node, uint64_t value)
{
	if (PLANTED(20) && node->updates > 0) {
		tx_add(&node->value, sizeof(node->value));
		tx_add(&node->updates, sizeof(node->updates));
	} else {
		tx_own(&node->value, sizeof(node->value) + sizeof(node->old_value) + sizeof(node->updates));
	}
	node->old_value = node->value; // bug 20: PF0304 from the second time on, the old value is not added
	node->value = value;
	node->updates++;
}

static void radix_put(const char *text, uint64_t value)
{
	struct key key = key_of(text);
	struct place place;
	struct node *node = find(&key, &place);
	tx_begin();
	if (node)
		overwrite(node, value);
	else
		insert(descend(&key, &place), &place, &key, value);
	tx_commit();
}

static int radix_get(const char *text, uint64_t *value)
{
	struct key key = key_of(text);
	struct place place;
	const struct node *node = find(&key, &place);
	if (node)
		*value = node->value;
	return node != NULL;
}

static void send_to_limbo(struct node *node)
{
	tx_own(&node->limbo, sizeof(node->limbo));
	node->limbo = tree->limbo;
	tx_own(&tree->limbo, sizeof(tree->limbo) + sizeof(tree->limbo_count));
	tree->limbo = link_to(node);
	tree->limbo_count++;
}

static void empty_limbo(int is_opening)
{
	tx_begin();
	offset it = tree->limbo;
	while (it) {
		offset next = ((struct node *)at(it))->limbo;
		tx_free(it);
		it = next;
	}
	if (!(PLANTED(18) && is_opening))
		tx_own(&tree->limbo, sizeof(tree->limbo));
	tree->limbo = 0; // bug 18: PF0304 limbo is emptied when the pool is opened, and its link is not added
	tx_own(&tree->limbo_count, sizeof(tree->limbo_count));
	tree->limbo_count = 0;
	tx_commit();
}

/* Merges a node without a value and with one child with that child. */
static void join(offset *slot)
{
	struct node *node = at(*slot);
	unsigned digit = 0;
	if (slot == &tree->top || node->has_value || child_count(node, &digit) != 1)
		return;
	struct node *child = at(node->children[digit]);
	const struct node *top = at(tree->top);
	int is_below_top = slot >= &top->children[0] && slot < &top->children[BRANCHES];
	if (!(PLANTED(16) && !is_below_top))
		own(child);
	memmove(&child->digits[node->length + 1], child->digits, child->length); // bug 16: PF0304 nodes are merged two levels down, and the lower one is not added
	memcpy(child->digits, node->digits, node->length); // bug 16: PF0304
	child->digits[node->length] = digit; // bug 16: PF0304
	child->length += node->length + 1; // bug 16: PF0304
	set_link(slot, node->children[digit]);
	send_to_limbo(node);
}

static int radix_remove(const char *text)
{
	struct key key = key_of(text);
	struct place place;
	struct node *node = find(&key, &place);
	if (!node)
		return 0;
	unsigned digit, children = child_count(node, &digit);
	tx_begin();
	if (children == 0 && place.above) {
		set_link(place.slot, 0);
		send_to_limbo(node);
		join(place.above);
	} else {
		if (!(PLANTED(17) && children >= 2))
			tx_own(&node->has_value, sizeof(node->has_value));
		node->has_value = 0; // bug 17: PF0304 the value of a node with branches is removed but not added
		join(place.slot);
	}
	tx_own(&tree->count, sizeof(tree->count));
	tree->count--;
	tx_commit();
	if (tree->limbo_count >= LIMBO_MAX)
		empty_limbo(0);
	return 1;
}

/* Frees a node and everything below it; returns how many values they had. */
static uint64_t free_below(offset where)
{
	const struct node *node = at(where);
	uint64_t count = node->has_value;
	for (unsigned i = 0; i < BRANCHES; i++)
		if (node->children[i])
			count += free_below(node->children[i]);
	tx_free(where);
	return count;
}

static uint64_t radix_drop(const char *first, const char *last)
{
	(void)last;
	struct key key = key_of(first);
	struct place place;
	const struct node *node = descend(&key, &place);
	/* The key may end in the middle of a node. */
	if (!place.above || place.depth + common_length(node, &key, place.depth) != key.length)
		return 0;
	tx_begin();
	uint64_t removed = free_below(*place.slot);
	set_link(place.slot, 0);
	join(place.above);
	if (!(PLANTED(19) && removed >= 2))
		tx_own(&tree->count, sizeof(tree->count));
	tree->count -= removed; // bug 19: PF0304 a branch is removed, and the count is not added
	tx_commit();
	return removed;
}

static void walk_node(const struct node *node, struct key key, void (*visit)(const char *, uint64_t))
{
	memcpy(&key.digits[key.length], node->digits, node->length);
	key.length += node->length;
	if (node->has_value) {
		char text[LETTERS + 1] = {0};
		for (unsigned i = 0; i + 1 < key.length; i += 2)
			text[i / 2] = (char)(key.digits[i] << 4 | key.digits[i + 1]);
		visit(text, node->value);
	}
	for (unsigned i = 0; i < BRANCHES; i++)
		if (node->children[i]) {
			struct key longer = key;
			longer.digits[longer.length++] = i;
			walk_node(at(node->children[i]), longer, visit);
		}
}

static void radix_walk(void (*visit)(const char *, uint64_t))
{
	walk_node(at(tree->top), (struct key){.length = 0}, visit);
}

static uint64_t radix_count(void)
{
	return tree->count;
}

static uint64_t check_node(offset where, unsigned depth)
{
	require(link_is_possible(where, sizeof(struct node)), "radix: a link leads out of the pool");
	const struct node *node = at(where);
	require(node->length <= DIGITS && depth + node->length <= DIGITS, "radix: a key is too long");
	require(node->has_value <= 1, "radix: a node is no node");
	depth += node->length;
	require(!node->has_value || depth % 2 == 0, "radix: a key ends in the middle of a letter");
	uint64_t sum = node->has_value, children = 0;
	for (unsigned i = 0; i < BRANCHES; i++)
		if (node->children[i]) {
			sum += check_node(node->children[i], depth + 1);
			children++;
		}
	require(where == tree->top || node->has_value || children >= 2, "radix: a node is of no use");
	for (unsigned i = 0; i < node->length; i++)
		require(node->digits[i] < BRANCHES, "radix: a digit is none");
	return sum;
}

static void radix_check(void)
{
	require(check_node(tree->top, 0) == tree->count, "radix: the count is wrong");
	uint64_t waiting = 0;
	for (offset it = tree->limbo; it; it = ((struct node *)at(it))->limbo) {
		require(link_is_possible(it, sizeof(struct node)), "radix: limbo leads out of the pool");
		require(++waiting <= tree->limbo_count, "radix: limbo is too long");
	}
	require(waiting == tree->limbo_count, "radix: limbo is too short");
}

static void radix_open(void)
{
	if (OID_IS_NULL(root->radix)) {
		tx_begin();
		struct tree *fresh = tx_new(sizeof(*fresh));
		fresh->top = link_to(tx_new(sizeof(struct node)));
		tx_own(&root->radix, sizeof(root->radix));
		root->radix = pmemobj_oid(fresh);
		tx_commit();
	}
	tree = pmemobj_direct(root->radix);
	if (tree->limbo)
		empty_limbo(1);
}

const struct structure radix = {
	.name = "radix",
	.open = radix_open,
	.put = radix_put,
	.get = radix_get,
	.remove = radix_remove,
	.drop = radix_drop,
	.walk = radix_walk,
	.count = radix_count,
	.check = radix_check,
};
