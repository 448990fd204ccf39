// A libpmemobj object of which one field is never written. With -DFAILS recovery depends on the field's highest bit.
// powerfail: needs = "-lpmemobj"
#include <libpmemobj.h>
#include <stdio.h>
#include <string.h>

struct object {
	uint64_t written;
	char gap[2000]; // libpmemobj uses the space of the first objects for its own data
	uint64_t forgotten;
};

struct root {
	PMEMoid object;
};

int main(int argc, char **argv)
{
	PMEMobjpool *pop;
	struct root *root;
	struct object *object;
	if (argc > 2) {
		pop = pmemobj_open(argv[1], "object");
		if (pop == NULL)
			return 0; // there is no pool yet
		root = pmemobj_direct(pmemobj_root(pop, sizeof(*root)));
		object = pmemobj_direct(root->object);
		if (object == NULL)
			return 0;
		uint64_t forgotten = object->forgotten; // reads what was never written
		printf("%d %d\n", (int)object->written, (int)forgotten);
#ifdef FAILS
		return forgotten >> 63;
#else
		return 0;
#endif
	}
	pop = pmemobj_create(argv[1], "object", PMEMOBJ_MIN_POOL, 0600);
	if (pop == NULL)
		return 9;
	root = pmemobj_direct(pmemobj_root(pop, sizeof(*root)));
	PMEMoid made;
	if (pmemobj_alloc(pop, &made, sizeof(*object), 1, NULL, NULL) != 0) // allocates it
		return 9;
	object = pmemobj_direct(made);
	object->written = 1;
	pmemobj_persist(pop, object, sizeof(*object));
	root->object = made;
	pmemobj_persist(pop, root, sizeof(*root));
	pmemobj_close(pop);
	return 0;
}
