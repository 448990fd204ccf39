/* A hash table on persistent malloc. With BUG a node is published before it is durable. Without an argument it
 * stores keys; `recover` checks them and inserts more, `dump` prints them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pm.h"

#define BUCKETS 16

struct node {
	uint64_t key;
	uint64_t value;
	struct node *next;
};

struct table {
	uint64_t buckets;
	struct node **heads;
};

static struct table *table_open(void)
{
	struct table **root = (struct table **)powerfail_root(3);
	if (*root)
		return *root;
	struct table *table = malloc(sizeof *table);
	table->buckets = BUCKETS;
	table->heads = calloc(BUCKETS, sizeof *table->heads);
	pm_persist(table->heads, BUCKETS * sizeof *table->heads);
	pm_persist(table, sizeof *table);
	*root = table;
	pm_persist(root, sizeof *root);
	return table;
}

static void insert(struct table *table, uint64_t key)
{
	struct node **head = &table->heads[key % table->buckets];
	struct node *node = malloc(sizeof *node);
	node->key = key; // planted
	node->value = ~key;
	node->next = *head;
#ifndef BUG
	pm_persist(node, sizeof *node);
#endif
	*head = node;
	pm_persist(head, sizeof *head);
}

static int check(const struct table *table, int prints)
{
	for (uint64_t bucket = 0; bucket < table->buckets; bucket++) {
		for (struct node *it = table->heads[bucket]; it; it = it->next) {
			if (it->value != ~it->key || it->key % table->buckets != bucket)
				return 1;
			if (prints)
				printf("%lu\n", it->key);
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct table *table = table_open();
	if (argc > 1 && !strcmp(argv[1], "dump"))
		return check(table, 1);
	if (argc > 1) {
		if (check(table, 0))
			return 1;
		/* Continues with the existing content, and must not be given memory that is in use. */
		for (uint64_t key = 100; key < 110; key++)
			insert(table, key);
		return check(table, 0);
	}
	for (uint64_t key = 0; key < 6; key++) {
		insert(table, 5 * key);
		printf("stored %lu\n", 5 * key);
		fflush(stdout);
	}
	return 0;
}
