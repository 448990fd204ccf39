// A tree whose nodes come from operator new. With BUG a node is published before it is durable.
#include <cstdio>
#include <new>

#include "pm.h"

struct alignas(128) Leaf {
	uint64_t value;
	uint64_t check;
};

struct Node {
	uint64_t key;
	Leaf *leaf;
	Node *child[2];

	explicit Node(uint64_t key) : key(key), leaf(new Leaf), child() {
		leaf->value = key * 3;
		leaf->check = key * 5; // planted
	}
};

static Node **find(Node **place, uint64_t key)
{
	while (*place && (*place)->key != key)
		place = &(*place)->child[key > (*place)->key];
	return place;
}

static void insert(Node **root, uint64_t key)
{
	Node **place = find(root, key);
	if (*place)
		return;
	Node *node = new Node(key);
#ifndef BUG
	pm_persist(node->leaf, sizeof *node->leaf);
#endif
	pm_persist(node, sizeof *node);
	*place = node;
	pm_persist(place, sizeof *place);
}

static int check(const Node *node)
{
	if (!node)
		return 0;
	if (node->leaf->value != node->key * 3 || node->leaf->check != node->key * 5)
		return 1;
	return check(node->child[0]) || check(node->child[1]);
}

int main(int argc, char **)
{
	Node **root = reinterpret_cast<Node **>(powerfail_root(0));
	if (argc > 1)
		return check(*root);
	int *scratch = new int[100];
	const uint64_t keys[] = {50, 20, 70, 10, 30};
	for (uint64_t key : keys)
		insert(root, key);
	delete[] scratch;
	delete new (std::nothrow) int;
	return 0;
}
