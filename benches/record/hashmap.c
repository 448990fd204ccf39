/* A hash map with chained buckets; every insert is a transaction. */
#include "map.h"

#define BUCKETS 16384

struct node {
	PMEMoid next;
	unsigned long key;
	unsigned long value;
	char payload[40];
};

struct root {
	PMEMoid bucket[BUCKETS];
	unsigned long count;
};

int main(int argc, char **argv)
{
	long operations = argc > 2 ? atol(argv[2]) : 1000;
	PMEMobjpool *pool = create_pool(argv[1], "hashmap", operations);
	PMEMoid root_id = pmemobj_root(pool, sizeof(struct root));
	struct root *root = pmemobj_direct(root_id);
	for (long i = 0; i < operations; i++) {
		unsigned long key = key_of(i);
		PMEMoid *bucket = &root->bucket[key % BUCKETS];
		TX_BEGIN(pool) {
			PMEMoid id = pmemobj_tx_alloc(sizeof(struct node), 1);
			struct node *node = pmemobj_direct(id);
			node->key = key;
			node->value = (unsigned long)i;
			memset(node->payload, (int)i, sizeof(node->payload));
			node->next = *bucket;
			pmemobj_tx_add_range_direct(bucket, sizeof(*bucket));
			*bucket = id;
			pmemobj_tx_add_range_direct(&root->count, sizeof(root->count));
			root->count++;
		} TX_END
	}
	printf("%lu\n", root->count);
	pmemobj_close(pool);
	return 0;
}
