/* A node in memory that was used before. With BUG not all of it is written; without BUG all of it is. */
#include <stdlib.h>

#include "pm.h"

struct node {
	uint64_t key;
	uint64_t value;
};

int main(int argc, char **argv)
{
	(void)argv;
	struct node **root = (struct node **)powerfail_root(0);
	if (argc > 1)
		return *root && (*root)->key + (*root)->value == 0;
	struct node *old = malloc(sizeof *old);
	old->value = 99;
	free(old);
#ifdef BUG
	struct node *node = malloc(sizeof *node); // planted
#else
	struct node *node = calloc(1, sizeof *node);
#endif
	node->key = 1;
	pm_persist(node, sizeof *node);
	*root = node;
	pm_persist(root, sizeof *root);
	return 0;
}
