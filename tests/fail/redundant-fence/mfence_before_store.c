// powerfail: recover = "{bin} {pool} recover"
// As in CCEH, an mfence between value and key of a slot: it makes nothing durable, and the two stores are in order anyway.
#include "../../programs/pm.h"

#define mfence() __asm__ volatile("mfence" ::: "memory")

struct slot {
	uint64_t key;
	uint64_t value;
};

static void insert(struct slot *slot, uint64_t key)
{
	slot->value = 10 * key;
	mfence(); // expect: PF0502
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
