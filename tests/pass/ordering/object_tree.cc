// powerfail: needs = "-lpmemobj"
// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--depth 1"
// A B+ tree of libpmemobj objects that refer to each other by address, not by object ID. A leaf that is full is split: the
// new leaf is complete and durable before a link leads to it.
#include "../../programs/objects.h"

struct Leaf {
	std::uint64_t keys[7];
	Leaf *next;
} PM_LINE;

struct Node {
	std::uint64_t lowest;
	Leaf *leaf;
	std::uint64_t room[6];
} PM_LINE;

struct Root {
	Leaf *first;
	std::uint64_t room[7];
	Node nodes[8];
} PM_LINE;

struct Tree {
	PMEMobjpool *objects;
	Root *root;

	void *allocate(std::size_t len) const
	{
		PMEMoid object;
		PM_REQUIRE(pmemobj_zalloc(objects, &object, len + 64, 1) == 0);
		auto address = reinterpret_cast<std::uintptr_t>(pmemobj_direct(object));
		return reinterpret_cast<void *>((address + 63) & ~std::uintptr_t(63));
	}

	explicit Tree(PMEMobjpool *pool) : objects(pool)
	{
		PMEMoid object = pmemobj_root(pool, sizeof(Root) + 64);
		auto address = reinterpret_cast<std::uintptr_t>(pmemobj_direct(object));
		root = reinterpret_cast<Root *>((address + 63) & ~std::uintptr_t(63));
	}

	// The inner level is a shortcut: what it misses is found along the list of leaves.
	Leaf *leaf_of(std::uint64_t key) const
	{
		Leaf *leaf = root->first;
		for (const Node &node : root->nodes)
			if (node.leaf && node.lowest <= key)
				leaf = node.leaf;
		while (leaf && leaf->next && leaf->next->keys[0] <= key)
			leaf = leaf->next;
		return leaf;
	}

	void insert(std::uint64_t key)
	{
		Leaf *leaf = leaf_of(key);
		int used = 0;
		while (leaf && used < 7 && leaf->keys[used])
			used++;
		if (leaf && used < 7) {
			leaf->keys[used] = key;
			pmemobj_persist(objects, &leaf->keys[used], sizeof(key));
			return;
		}
		auto *added = static_cast<Leaf *>(allocate(sizeof(Leaf)));
		added->keys[0] = key;
		pmemobj_persist(objects, added, sizeof(*added));
		Leaf **link = leaf ? &leaf->next : &root->first;
		*link = added;
		pmemobj_persist(objects, link, sizeof(*link));
		for (Node &node : root->nodes) {
			if (node.leaf)
				continue;
			node.lowest = key;
			node.leaf = added;
			pmemobj_persist(objects, &node, 16);
			return;
		}
	}

	// Whether all keys from 1 on, as many as there are, are found by the links.
	bool is_sound() const
	{
		std::uint64_t expected = 1;
		for (Leaf *leaf = root->first; leaf; leaf = leaf->next) {
			if (leaf->keys[0] != expected || leaf_of(expected) != leaf)
				return false;
			for (std::uint64_t key : leaf->keys)
				expected += key == expected;
		}
		return true;
	}
};

int main(int argc, char **argv)
{
	if (pm_mode(argc, argv, "recover")) {
		PMEMobjpool *pool = objects_open(argv[1]);
		bool is_sound = Tree(pool).is_sound();
		pmemobj_close(pool);
		return is_sound ? 0 : 1;
	}
	PMEMobjpool *pool = objects_create(argv[1]);
	Tree tree(pool);
	for (std::uint64_t key = 1; key <= 9; key++)
		tree.insert(key);
	pmemobj_close(pool);
	return 0;
}
