/* A B-tree of order 8 that splits full nodes on the way down; every insert is a transaction. */
#include "map.h"

#define KEYS 7

struct node {
	int count;
	int is_leaf;
	unsigned long key[KEYS];
	unsigned long value[KEYS];
	PMEMoid child[KEYS + 1];
};

struct root {
	PMEMoid top;
	unsigned long count;
};

static struct node *node_of(PMEMoid id) { return pmemobj_direct(id); }

static PMEMoid new_node(int is_leaf)
{
	PMEMoid id = pmemobj_tx_zalloc(sizeof(struct node), 1);
	node_of(id)->is_leaf = is_leaf;
	return id;
}

static void add(void *field, size_t len) { pmemobj_tx_add_range_direct(field, len); }

/* Splits the full child at index `at` of a node that has room. */
static void split(struct node *parent, int at)
{
	struct node *left = node_of(parent->child[at]);
	PMEMoid right_id = new_node(left->is_leaf);
	struct node *right = node_of(right_id);
	int middle = KEYS / 2;
	add(parent, sizeof(*parent));
	add(left, sizeof(*left));
	right->count = KEYS - middle - 1;
	memcpy(right->key, left->key + middle + 1, (size_t)right->count * sizeof(long));
	memcpy(right->value, left->value + middle + 1, (size_t)right->count * sizeof(long));
	if (!left->is_leaf)
		memcpy(right->child, left->child + middle + 1,
		       (size_t)(right->count + 1) * sizeof(PMEMoid));
	left->count = middle;
	for (int i = parent->count; i > at; i--) {
		parent->key[i] = parent->key[i - 1];
		parent->value[i] = parent->value[i - 1];
		parent->child[i + 1] = parent->child[i];
	}
	parent->key[at] = left->key[middle];
	parent->value[at] = left->value[middle];
	parent->child[at + 1] = right_id;
	parent->count++;
}

static void insert(struct root *root, unsigned long key, unsigned long value)
{
	if (node_of(root->top)->count == KEYS) {
		PMEMoid top = new_node(0);
		node_of(top)->child[0] = root->top;
		split(node_of(top), 0);
		add(&root->top, sizeof(root->top));
		root->top = top;
	}
	struct node *node = node_of(root->top);
	for (;;) {
		int at = 0;
		while (at < node->count && node->key[at] < key)
			at++;
		if (node->is_leaf) {
			add(node, sizeof(*node));
			for (int i = node->count; i > at; i--) {
				node->key[i] = node->key[i - 1];
				node->value[i] = node->value[i - 1];
			}
			node->key[at] = key;
			node->value[at] = value;
			node->count++;
			break;
		}
		if (node_of(node->child[at])->count == KEYS) {
			split(node, at);
			if (node->key[at] < key)
				at++;
		}
		node = node_of(node->child[at]);
	}
	add(&root->count, sizeof(root->count));
	root->count++;
}

/* The number of keys of a tree. Aborts if they are not in order. */
static unsigned long verified(PMEMoid id, unsigned long *last)
{
	struct node *node = node_of(id);
	unsigned long count = (unsigned long)node->count;
	for (int i = 0; i <= node->count; i++) {
		if (!node->is_leaf)
			count += verified(node->child[i], last);
		if (i < node->count) {
			if (*last > node->key[i])
				exit(3);
			*last = node->key[i];
		}
	}
	return count;
}

/* Recovery: opens the pool and checks the tree. */
static int verify(const char *path)
{
	PMEMobjpool *pool = pmemobj_open(path, "btree");
	if (pool == NULL)
		return 2;
	struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
	unsigned long last = 0;
	unsigned long count = OID_IS_NULL(root->top) ? 0 : verified(root->top, &last);
	int is_sound = count == root->count;
	pmemobj_close(pool);
	return is_sound ? 0 : 1;
}

/* Recovery that continues: checks the tree and then inserts one more key. */
static int resume(const char *path)
{
	int status = verify(path);
	if (status != 0)
		return status;
	PMEMobjpool *pool = pmemobj_open(path, "btree");
	if (pool == NULL)
		return 2;
	struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
	if (!OID_IS_NULL(root->top)) {
		TX_BEGIN(pool) {
			insert(root, key_of((long)root->count), root->count);
		} TX_END
	}
	pmemobj_close(pool);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 2 && strcmp(argv[2], "verify") == 0)
		return verify(argv[1]);
	if (argc > 2 && strcmp(argv[2], "resume") == 0)
		return resume(argv[1]);
	long operations = argc > 2 ? atol(argv[2]) : 1000;
	PMEMobjpool *pool = create_pool(argv[1], "btree", operations);
	struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
	TX_BEGIN(pool) {
		add(root, sizeof(*root));
		root->top = new_node(1);
	} TX_END
	for (long i = 0; i < operations; i++) {
		TX_BEGIN(pool) {
			insert(root, key_of(i), (unsigned long)i);
		} TX_END
	}
	printf("%lu\n", root->count);
	pmemobj_close(pool);
	return 0;
}
