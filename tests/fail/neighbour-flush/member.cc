// powerfail: flags = "--deny warnings --only neighbour-flush,durability,redundant-flush"
// A counter in front of what each push flushes.
#include "../../programs/pm.h"

class Stack {
public:
	[[gnu::noinline]] void push(uint64_t value)
	{
		top = value;
		pm_persist(&top);
	}

	[[gnu::noinline]] void count_one()
	{
		pushes = pushes + 1; // expect: PF0604
	}

private:
	uint64_t pushes;
	uint64_t top;
};

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	auto *stack = static_cast<Stack *>(pm_open(argv[1], 4096));
	for (uint64_t i = 1; i <= 3; i++) {
		stack->count_one();
		stack->push(i);
	}
	return 0;
}
