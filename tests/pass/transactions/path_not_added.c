// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// An insertion counts in each node on its way down and links the new node at the end. It adds all of these nodes to its
// transaction.
#include <libpmemobj.h>

#include "../../programs/pm.h"

struct node {
	uint64_t key;
	uint64_t sum;
	PMEMoid children[2];
	uint64_t size;
};

struct root {
	PMEMoid top;
};

static PMEMobjpool *pool;

static struct node *node_at(PMEMoid id)
{
	return pmemobj_direct(id);
}

static void insert(struct root *root, uint64_t key)
{
	TX_BEGIN(pool) {
		PMEMoid added = pmemobj_tx_zalloc(sizeof(struct node), 1);
		node_at(added)->key = key;
		node_at(added)->sum = ~key;
		node_at(added)->size = 1;
		PMEMoid *link = &root->top;
		pmemobj_tx_add_range_direct(link, sizeof(*link));
		while (!OID_IS_NULL(*link)) {
			struct node *node = node_at(*link);
			pmemobj_tx_add_range_direct(node, sizeof(*node));
			node->size++;
			link = &node->children[key > node->key];
		}
		*link = added;
	} TX_END
}

static uint64_t check(PMEMoid id)
{
	if (OID_IS_NULL(id))
		return 0;
	struct node *node = node_at(id);
	if (node->sum != ~node->key)
		abort();
	uint64_t size = 1 + check(node->children[0]) + check(node->children[1]);
	if (size != node->size)
		exit(4);
	return size;
}

int main(int argc, char **argv)
{
	static const uint64_t KEYS[] = { 50, 20, 70, 80 };
	if (pm_mode(argc, argv, "recover")) {
		pool = pmemobj_open(argv[1], "tree");
		if (!pool)
			return 0;
		struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(*root)));
		check(root->top);
		pmemobj_close(pool);
		return 0;
	}
	pool = pmemobj_create(argv[1], "tree", PMEMOBJ_MIN_POOL, 0600);
	PM_REQUIRE(pool);
	struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(*root)));
	for (unsigned i = 0; i < sizeof(KEYS) / sizeof(KEYS[0]); i++)
		insert(root, KEYS[i]);
	pmemobj_close(pool);
	return 0;
}
