// powerfail: needs = "-lpmemobj"
// A transaction that adds the head of a list but not its length. The macro selects how recovery reacts: with
// REPAIRS it counts again, with REFUSES it rejects a length without a head, otherwise it does not check.
#include "../../../../../tests/programs/objects.h"

struct root {
	uint64_t head;
	uint64_t length;
};

static int recover(const char *path)
{
	PMEMobjpool *pool = objects_open(path);
	struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
	int status = 0;
#ifdef REPAIRS
	root->length = root->head != 0;
	pmemobj_persist(pool, &root->length, sizeof(root->length));
#endif
#ifdef REFUSES
	status = root->length != (root->head != 0);
#endif
	(void)root;
	pmemobj_close(pool);
	return status;
}

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover"))
		return recover(argv[1]);
	PMEMobjpool *pool = objects_create(argv[1]);
	struct root *root = pmemobj_direct(pmemobj_root(pool, sizeof(struct root)));
	/* The first transaction stores the value that is already there. */
	for (uint64_t round = 0; round < 2; round++) {
		TX_BEGIN(pool) {
			pmemobj_tx_add_range_direct(&root->head, sizeof(root->head));
			root->head = round;
			root->length = round;
		} TX_END
	}
	pmemobj_close(pool);
	return 0;
}
