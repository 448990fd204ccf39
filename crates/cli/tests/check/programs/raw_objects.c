// powerfail: needs = "-lpmemobj"
// Objects of libpmemobj that refer to each other by address. With "read", the pool is opened and the addresses are
// followed.
#include <libpmemobj.h>
#include <stdint.h>
#include <stdio.h>

struct node {
	uint64_t value;
	struct node *next;
};

struct root {
	struct node *head;
	uint64_t count;
};

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	int reads = argc > 2;
	PMEMobjpool *objects = reads ? pmemobj_open(argv[1], "raw") : pmemobj_create(argv[1], "raw", PMEMOBJ_MIN_POOL, 0600);
	if (!objects) {
		fprintf(stderr, "%s\n", pmemobj_errormsg());
		return 3;
	}
	struct root *root = pmemobj_direct(pmemobj_root(objects, sizeof(struct root)));
	if (reads) {
		uint64_t count = 0;
		for (struct node *node = root->head; node; node = node->next)
			count++;
		int is_whole = count == root->count;
		pmemobj_close(objects);
		return is_whole ? 0 : 4;
	}
	for (uint64_t value = 0; value < 4; value++) {
		TX_BEGIN(objects) {
			pmemobj_tx_add_range_direct(root, sizeof(*root));
			struct node *node = pmemobj_direct(pmemobj_tx_zalloc(sizeof(struct node), 1));
			node->value = value;
			node->next = root->head;
			root->head = node;
			root->count++;
		} TX_END
	}
	pmemobj_close(objects);
	return 0;
}
