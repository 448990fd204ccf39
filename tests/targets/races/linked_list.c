/*
 * Figure 1 of the XFDetector paper: a node is inserted at the head of a list, in a transaction that does not
 * add the list's length.
 *
 *     linked_list POOL append        creates a list and inserts a node
 *     linked_list POOL recover       opens the pool, which rolls back, and pops a node
 *     linked_list POOL recover-alt   opens the pool, counts the nodes, sets the length, and pops a node
 *
 * What the paper finds: if the power fails before the transaction is committed, the length may be the new one or
 * the old one when `pop` reads it: a cross-failure race. With the new length `pop` removes a node from an empty
 * list. `recover-alt` overwrites the length before it is read: nothing is found, although the workload is the
 * same. With -DAPPENDS=N the workload inserts N nodes. The race is there each time, but `pop` crashes only if the list
 * was empty before.
 */
#include <libpmemobj.h>

#include "../pool.h"

#ifndef APPENDS
#define APPENDS 1
#endif

POBJ_LAYOUT_BEGIN(list);
POBJ_LAYOUT_ROOT(list, struct list);
POBJ_LAYOUT_TOID(list, struct node);
POBJ_LAYOUT_END(list);

struct node {
	uint64_t value;
	TOID(struct node) next;
};

struct list {
	TOID(struct node) head;
	uint64_t length;
};

static void append(PMEMobjpool *pool, TOID(struct list) list, uint64_t value)
{
	TX_BEGIN(pool)
	{
		TOID(struct node) node = TX_NEW(struct node);
		D_RW(node)->value = value;
		D_RW(node)->next = D_RO(list)->head;
		TX_ADD_FIELD(list, head);
		D_RW(list)->head = node;
		D_RW(list)->length++; // APPEND
	}
	TX_END // COMMIT
}

static void pop(PMEMobjpool *pool, TOID(struct list) list)
{
	if (D_RO(list)->length == 0) // POP
		return;
	TX_BEGIN(pool)
	{
		TOID(struct node) head = D_RO(list)->head;
		TX_ADD(list);
		D_RW(list)->head = D_RO(head)->next;
		D_RW(list)->length--;
		TX_FREE(head);
	}
	TX_END
}

static void count_again(PMEMobjpool *pool, TOID(struct list) list)
{
	uint64_t length = 0;
	TOID(struct node) node = D_RO(list)->head;
	for (; !TOID_IS_NULL(node); node = D_RO(node)->next)
		length++;
	D_RW(list)->length = length;
	pmemobj_persist(pool, &D_RW(list)->length, sizeof(length));
}

int main(int argc, char **argv)
{
	REQUIRE(argc == 3);
	int is_append = strcmp(argv[2], "append") == 0;
	const char *layout = POBJ_LAYOUT_NAME(list);
	PMEMobjpool *pool = is_append ? pmemobj_create(argv[1], layout, PMEMOBJ_MIN_POOL, 0600)
				      : pmemobj_open(argv[1], layout);
	REQUIRE(pool != NULL);
	TOID(struct list) list = POBJ_ROOT(pool, struct list);
	if (is_append) {
		for (uint64_t value = 1; value <= APPENDS; value++)
			append(pool, list, value);
	} else {
		if (strcmp(argv[2], "recover-alt") == 0)
			count_again(pool, list);
		pop(pool, list);
	}
	pmemobj_close(pool);
	return 0;
}
