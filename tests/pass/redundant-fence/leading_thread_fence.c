// powerfail: recover = "{bin} {pool} recover"
// powerfail: opt = "-O2"
// A locked operation before a flush that does work of its own: it counts.
#include "../../programs/pm.h"

static uint64_t calls;

__attribute__((noinline)) static void persist(void *at)
{
	__atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST);
	pm_flush(at);
	pm_fence();
}

int main(int argc, char **argv)
{
	volatile uint64_t *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool[0] > 3;
	for (uint64_t i = 1; i <= 3; i++) {
		pool[0] = i;
		persist((void *)pool);
	}
	return calls != 3;
}
