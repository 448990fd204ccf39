// A list whose nodes refer to each other by address. It lies in PATH.data, which is mapped wherever there is room, after
// PATH.lock. With -DBUG, the head refers to a node that is not durable yet.
#include <sys/file.h>

#include "../../../../../tests/programs/pm.h"

struct node {
	uint64_t value;
	uint64_t inverse;
	struct node *next;
	uint64_t unused[5];
};

struct pool {
	struct node *head;
	uint64_t unused[7];
	struct node nodes[8];
};

static void *beside(const char *path, const char *suffix, size_t len)
{
	char name[4096];
	snprintf(name, sizeof(name), "%s%s", path, suffix);
	return pm_open(name, len);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	uint64_t *lock = beside(argv[1], ".lock", 4096);
	lock[0] = 1;
	pm_persist(lock);
	struct pool *pool = beside(argv[1], ".data", 65536);
	for (uint64_t value = 0; value < 8; value++) {
		struct node *node = &pool->nodes[value];
#ifdef BUG
		struct node *before = pool->head;
		pool->head = node;
		pm_persist(&pool->head);
		node->next = before;
#else
		node->next = pool->head;
#endif
		node->value = value;
		node->inverse = ~value;
		pm_persist(node);
#ifndef BUG
		pool->head = node;
		pm_persist(&pool->head);
#endif
	}
	return 0;
}
