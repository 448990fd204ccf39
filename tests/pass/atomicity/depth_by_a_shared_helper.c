// powerfail: recover = "{bin} {pool} recover"
// A helper stores and persists each word of a stack. The depth comes after the item.
#include "../../programs/pm.h"

struct stack {
	uint64_t depth PM_LINE;
	uint64_t items[8] PM_LINE;
};

static void set(uint64_t *at, uint64_t value)
{
	*at = value;
	pm_persist(at);
}

static void push(struct stack *stack, uint64_t item)
{
	uint64_t depth = stack->depth;
	set(&stack->items[depth], item);
	set(&stack->depth, depth + 1);
}

static void pop(struct stack *stack)
{
	uint64_t depth = stack->depth;
	set(&stack->depth, depth - 1);
	set(&stack->items[depth - 1], 0);
}

int main(int argc, char **argv)
{
	struct stack *stack = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover")) {
		for (uint64_t i = 0; i < stack->depth; i++)
			if (stack->items[i] == 0)
				return 1;
		return 0;
	}
	push(stack, 5);
	push(stack, 6);
	pop(stack);
	push(stack, 7);
	return 0;
}
