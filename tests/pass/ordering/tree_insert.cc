// powerfail: recover = "{bin} {pool} recover"
// A binary tree makes a leaf durable before it links it.
#include <initializer_list>

#include "../../programs/pm.h"

struct Leaf {
	std::uint64_t key;
	std::uint64_t check;
	std::uint64_t left, right;
} PM_LINE;

class Tree {
public:
	explicit Tree(const char *path) : start(static_cast<char *>(pm_open(path, 4096))) {}

	void insert(std::uint64_t key)
	{
		Leaf *leaf = at(64 * ++used);
		leaf->key = key;
		leaf->check = ~key;
		pm_persist(leaf);
		std::uint64_t *link = reinterpret_cast<std::uint64_t *>(start);
		while (*link)
			link = key < at(*link)->key ? &at(*link)->left : &at(*link)->right;
		*link = 64 * used;
		pm_persist(link);
	}

	bool sound(std::uint64_t link) const
	{
		if (!link)
			return true;
		const Leaf *leaf = at(link);
		return leaf->check == ~leaf->key && sound(leaf->left) && sound(leaf->right);
	}

	std::uint64_t root() const { return *reinterpret_cast<std::uint64_t *>(start); }

private:
	Leaf *at(std::uint64_t offset) const { return reinterpret_cast<Leaf *>(start + offset); }
	char *start;
	std::uint64_t used = 0;
};

int main(int argc, char **argv)
{
	Tree tree(argv[1]);
	if (pm_mode(argc, argv, "recover"))
		return !tree.sound(tree.root());
	for (std::uint64_t key : {5, 2, 8, 7})
		tree.insert(key);
	return 0;
}
