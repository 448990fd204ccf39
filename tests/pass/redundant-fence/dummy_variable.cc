// powerfail: recover = "{bin} {pool} recover"
// An exchange on a lock, right after a flush and a fence.
#include "../../programs/pm.h"

static uint32_t lock = 1;

[[gnu::noinline]] static void persist(void *at)
{
	pm_flush(at);
	pm_fence();
	uint32_t released = 0;
	__asm__ volatile("xchgl %1, %0" : "+m"(lock), "+r"(released) : : "memory");
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
