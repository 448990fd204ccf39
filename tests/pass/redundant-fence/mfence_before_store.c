// powerfail: recover = "{bin} {pool} recover"
// The value of a slot is stored before its key, in the same line.
#include "../../programs/pm.h"

#define mfence() __asm__ volatile("mfence" ::: "memory")

struct slot {
	uint64_t key;
	uint64_t value;
};

static void insert(struct slot *slot, uint64_t key)
{
	slot->value = 10 * key;
	slot->key = key;
	pm_flush(slot);
	mfence();
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
