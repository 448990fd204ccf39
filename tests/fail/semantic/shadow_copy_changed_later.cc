// powerfail: flags = "--races"
// powerfail: recover = "{bin} {pool} recover"
// A copy of an object is changed and replaces the object; one member is changed only after that.
#include "../../../include/powerfail.h"
#include "../../programs/pm.h"

struct Object {
	std::uint64_t name;
	std::uint64_t size PM_LINE;
};

struct Pool {
	std::uint64_t current PM_LINE;
	Object objects[2] PM_LINE;
	std::uint64_t changes PM_LINE;
	std::uint64_t name PM_LINE;
	std::uint64_t size PM_LINE;
};

static void set(std::uint64_t &at, std::uint64_t value)
{
	at = value;
	pm_persist(&at);
}

int main(int argc, char **argv)
{
	auto *pool = static_cast<Pool *>(pm_open(argv[1], 4096));
	powerfail_commit_range(&pool->current, sizeof(pool->current), pool->objects, sizeof(pool->objects));
	if (pm_mode(argc, argv, "recover")) {
		if (std::uint64_t current = pool->current; current != 0) {
			set(pool->name, pool->objects[current - 1].name);
			set(pool->size, pool->objects[current - 1].size);
		}
		return 0;
	}
	Object &shadow = pool->objects[1];
	shadow.name = 8;
	pm_persist(&shadow.name);
	set(pool->current, 2);
	shadow.size = 64; // expect: PF0702
	pm_persist(&shadow.size);
	set(pool->changes, 1);
	return 0;
}
