// powerfail: recover = "{bin} {pool} recover"
// A locked addition of zero to the stack, which is an mfence by another name, before a flush that needs none.
#include "../../programs/pm.h"

#define full_fence() __asm__ volatile("lock addl $0, (%%rsp)" ::: "memory", "cc")

__attribute__((noinline)) static void persist(void *at)
{
	full_fence(); // expect: PF0502
	pm_flush(at);
	full_fence();
}

int main(int argc, char **argv)
{
	uint64_t *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool[0] > 3;
	for (uint64_t i = 1; i <= 3; i++) {
		pool[0] = i;
		persist(pool);
	}
	return 0;
}
