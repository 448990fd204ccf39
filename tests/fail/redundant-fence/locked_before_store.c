// powerfail: recover = "{bin} {pool} recover"
// A locked operation on the stack, which is an mfence by another name, between value and key of a slot.
#include "../../programs/pm.h"

#define full_fence() __asm__ volatile("lock orq $0, (%%rsp)" ::: "memory", "cc")

struct slot {
	uint64_t key;
	uint64_t value;
};

static void insert(struct slot *slot, uint64_t key)
{
	slot->value = 10 * key;
	full_fence(); // expect: PF0502
	slot->key = key;
	pm_flush(slot);
	pm_fence();
}

int main(int argc, char **argv)
{
	struct slot *slots = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return slots[0].key && slots[0].value != 10;
	for (uint64_t i = 0; i < 3; i++)
		insert(&slots[i], i + 1);
	return 0;
}
