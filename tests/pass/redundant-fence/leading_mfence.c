// powerfail: recover = "{bin} {pool} recover"
// A function to persist a range: flushes, and an mfence after them.
#include "../../programs/pm.h"

#define mfence() __asm__ volatile("mfence" ::: "memory")

__attribute__((noinline)) static void persist(void *at, size_t len)
{
	pm_flush_range(at, len);
	mfence();
}

int main(int argc, char **argv)
{
	uint64_t *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool[0] > 3;
	for (uint64_t i = 1; i <= 3; i++) {
		pool[0] = i;
		persist(pool, 8);
	}
	return 0;
}
