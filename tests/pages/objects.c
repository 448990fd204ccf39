/*
 * The code of the pages about findings, docs/reference/findings, for libpmemobj: each piece is a function of its own, named after
 * its page. A test writes the pieces to files, records this program once and lints the trace.
 */
#include <libpmemobj.h>
#include <stdint.h>
#include <stdio.h>

#define CASE static __attribute__((noinline)) void
#define wrong(code) CASE wrong_##code(void)
#define right(code) CASE right_##code(void)

POBJ_LAYOUT_BEGIN(pages);
POBJ_LAYOUT_ROOT(pages, struct counter);
POBJ_LAYOUT_TOID(pages, struct list);
POBJ_LAYOUT_TOID(pages, struct map);
POBJ_LAYOUT_TOID(pages, struct node);
POBJ_LAYOUT_TOID(pages, struct tree);
POBJ_LAYOUT_END(pages);

struct counter {
	uint64_t value;
};
struct list {
	TOID(struct node) head;
	uint64_t length;
};
struct map {
	uint64_t count, buckets[8];
};
struct node {
	uint64_t value;
};
struct tree {
	TOID(struct node) node;
};

static PMEMobjpool *pool;
static TOID(struct list) list;
static TOID(struct node) node;
static TOID(struct tree) tree;

static void rotate(TOID(struct node) node)
{
	TX_ADD(node);
	D_RW(node)->value++;
}

wrong(PF0104)
{
#include "PF0104-wrong.inc"
}
right(PF0104)
{
	TOID(struct counter) counter;
	POBJ_ZALLOC(pool, &counter, struct counter, sizeof(struct counter));
#include "PF0104-right.inc"
}
wrong(PF0304)
{
#include "PF0304-wrong.inc"
}
right(PF0304)
{
#include "PF0304-right.inc"
}
wrong(PF0506)
{
	TX_BEGIN(pool) {
#include "PF0506-wrong.inc"
	} TX_END
}
wrong(PF0507)
{
#include "PF0507-wrong.inc"
}
/* What recovery reads is not seen in the workload alone. */
wrong(PF0703)
{
#include "PF0703-wrong.inc"
}
right(PF0703)
{
	TOID(struct map) map;
#include "PF0703-right.inc"
}

int main(int argc, char **argv)
{
	pool = argc == 2 ? pmemobj_create(argv[1], POBJ_LAYOUT_NAME(pages), PMEMOBJ_MIN_POOL, 0644) : NULL;
	if (pool == NULL) {
		perror("pool");
		return 1;
	}
	POBJ_ZALLOC(pool, &list, struct list, sizeof(struct list));
	POBJ_ZALLOC(pool, &node, struct node, sizeof(struct node));
	POBJ_ZALLOC(pool, &tree, struct tree, sizeof(struct tree));
	right_PF0104();
	wrong_PF0304();
	right_PF0304();
	wrong_PF0506();
	wrong_PF0507();
	wrong_PF0703();
	right_PF0703();
	wrong_PF0104();
	pmemobj_close(pool);
	return 0;
}
