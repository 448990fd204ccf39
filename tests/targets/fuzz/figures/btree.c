/*
 * Figure 1 of the PMFuzz paper: a B-tree that takes an item from the left sibling when a node underflows, and
 * adds the wrong item of the parent for that; and, if the node is not empty, adds the node twice. Only removals
 * in a tree with two nodes, the left of which has items to spare, reach this code.
 *
 * Arguments: pool. Commands on standard input, one per line: "insert KEY", "remove KEY". Without any, checks the tree.
 * -DBUGS_ALL plants the bugs.
 */
#include "../kv/planted.h"

#include <libpmemobj.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ITEMS_MAX = 4, ITEMS_MIN = 2, SLOTS_MAX = 64 };

POBJ_LAYOUT_BEGIN(figure_1);
POBJ_LAYOUT_ROOT(figure_1, struct parent);
POBJ_LAYOUT_TOID(figure_1, struct node);
POBJ_LAYOUT_END(figure_1);

struct node {
	uint64_t n;
	uint64_t items[ITEMS_MAX];
};

/* Item p is the smallest key that may be in slot p + 1. */
struct parent {
	uint64_t n;
	uint64_t items[SLOTS_MAX];
	TOID(struct node) slots[SLOTS_MAX];
};

static PMEMobjpool *pool;
static struct parent *parent;

static struct node *slot(uint64_t p)
{
	return D_RW(parent->slots[p]);
}

static uint64_t slot_of(uint64_t key)
{
	uint64_t p = 0;
	while (p + 1 < parent->n && parent->items[p] <= key)
		p++;
	return p;
}

static uint64_t position(const struct node *node, uint64_t key)
{
	uint64_t p = 0;
	while (p < node->n && node->items[p] < key)
		p++;
	return p;
}

static void add(void *address, size_t size)
{
	pmemobj_tx_add_range_direct(address, size);
}

/* If is_added, the caller has added the node. */
static void insert_item(struct node *node, uint64_t key, uint64_t p, int is_added)
{
	if (node->n > p) {
		if (!is_added)
			add(node, sizeof(*node));
		else if (PLANTED(2))
			pmemobj_tx_add_range_direct(node, sizeof(*node)); // bug 2: PF0506 the node is added twice
		memmove(&node->items[p + 1], &node->items[p], (node->n - p) * sizeof(*node->items));
	} else if (!is_added) {
		add(node, sizeof(*node));
	}
	node->items[p] = key;
	node->n++;
}

static void split(uint64_t p)
{
	struct node *left = slot(p);
	TOID(struct node) right = TX_ZNEW(struct node);
	uint64_t kept = ITEMS_MAX / 2;
	D_RW(right)->n = ITEMS_MAX - kept;
	memcpy(D_RW(right)->items, &left->items[kept], (ITEMS_MAX - kept) * sizeof(*left->items));
	add(parent, sizeof(*parent));
	for (uint64_t i = parent->n; i > p + 1; i--) {
		parent->slots[i] = parent->slots[i - 1];
		parent->items[i - 1] = parent->items[i - 2];
	}
	parent->slots[p + 1] = right;
	parent->items[p] = left->items[kept];
	parent->n++;
	add(left, sizeof(*left));
	left->n = kept;
}

static void insert(uint64_t key)
{
	uint64_t p = slot_of(key);
	struct node *node = slot(p);
	uint64_t index = position(node, key);
	if ((index < node->n && node->items[index] == key) || parent->n == SLOTS_MAX)
		return;
	int is_split = node->n == ITEMS_MAX;
	if (is_split) {
		split(p);
		p = slot_of(key);
	}
	/* Both halves belong to the transaction. */
	insert_item(slot(p), key, position(slot(p), key), is_split);
}

static void rotate_left(struct node *left, struct node *node, uint64_t p)
{
	uint64_t key = left->items[left->n - 1];
	/* The caller has added the node. */
	insert_item(node, key, 0, 1);
	if (PLANTED(1))
		pmemobj_tx_add_range_direct(&parent->items[p], sizeof(*parent->items)); // bug 1: PF0507
	else
		add(&parent->items[p - 1], sizeof(*parent->items));
	parent->items[p - 1] = key; // bug 1: PF0304 the next item of the parent is added
	add(&left->n, sizeof(left->n));
	left->n--;
}

static void rebalance(struct node *node, uint64_t p)
{
	struct node *left = p > 0 ? slot(p - 1) : NULL;
	if (left && left->n > ITEMS_MIN)
		rotate_left(left, node, p);
}

static void remove_key(uint64_t key)
{
	uint64_t p = slot_of(key);
	struct node *node = slot(p);
	uint64_t index = position(node, key);
	if (index == node->n || node->items[index] != key)
		return;
	add(node, sizeof(*node));
	memmove(&node->items[index], &node->items[index + 1], (node->n - index - 1) * sizeof(*node->items));
	node->n--;
	if (node->n < ITEMS_MIN)
		rebalance(node, p);
}

static void in_transaction(void (*change)(uint64_t), uint64_t key)
{
	TX_BEGIN(pool) {
		change(key);
	} TX_ONABORT {
		exit(2);
	} TX_END
}

static void require(int condition)
{
	if (!condition) {
		fprintf(stderr, "the tree is broken\n");
		exit(1);
	}
}

static void check(void)
{
	require(parent->n >= 1 && parent->n <= SLOTS_MAX);
	for (uint64_t p = 0; p < parent->n; p++) {
		const struct node *node = slot(p);
		require(node->n <= ITEMS_MAX);
		for (uint64_t i = 0; i < node->n; i++) {
			require(i == 0 || node->items[i - 1] < node->items[i]);
			require(p == 0 || node->items[i] >= parent->items[p - 1]);
			require(p + 1 == parent->n || node->items[i] < parent->items[p]);
		}
	}
}

static void open_tree(const char *path)
{
	const char *layout = POBJ_LAYOUT_NAME(figure_1);
	int exists = access(path, F_OK) == 0;
	pool = exists ? pmemobj_open(path, layout) : pmemobj_create(path, layout, PMEMOBJ_MIN_POOL, 0600);
	if (!pool)
		exit(2);
	parent = D_RW(POBJ_ROOT(pool, struct parent));
	if (parent->n == 0) {
		TX_BEGIN(pool) {
			add(&parent->n, sizeof(parent->n));
			parent->n = 1;
			add(&parent->slots[0], sizeof(parent->slots[0]));
			parent->slots[0] = TX_ZNEW(struct node);
		} TX_END
	}
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	open_tree(argv[1]);
	char line[64], name[16];
	int lines = 0;
	for (; fgets(line, sizeof(line), stdin); lines++) {
		uint64_t key;
		if (sscanf(line, "%15s %lu", name, &key) != 2)
			continue;
		if (strcmp(name, "insert") == 0)
			in_transaction(insert, key);
		else if (strcmp(name, "remove") == 0)
			in_transaction(remove_key, key);
	}
	if (lines == 0)
		check();
	pmemobj_close(pool);
	return 0;
}
