// powerfail: recover = "{bin} {pool} recover"
// A locked operation on a variable that is there for nothing else, right after a flush and a fence.
#include "../../programs/pm.h"

static uint32_t dummy;

[[gnu::noinline]] static void persist(void *at)
{
	pm_flush(at);
	pm_fence();
	__asm__ volatile("lock xorl $0, %0" : "+m"(dummy) : : "memory", "cc"); // expect: PF0502
}

int main(int argc, char **argv)
{
	auto *pool = static_cast<uint64_t *>(pm_open(argv[1], 4096));
	if (pm_mode(argc, argv, "recover"))
		return pool[0] > 3;
	for (uint64_t i = 1; i <= 3; i++) {
		pool[0] = i;
		persist(pool);
	}
	return 0;
}
