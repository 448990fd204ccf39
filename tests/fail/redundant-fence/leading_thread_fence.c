// powerfail: recover = "{bin} {pool} recover"
// powerfail: opt = "-O2"
// A fence for threads before a flush, which needs none. The compiler makes a locked operation of it.
#include "../../programs/pm.h"

static uint64_t calls;

__attribute__((noinline)) static void persist(void *at)
{
	calls++;
	__atomic_thread_fence(__ATOMIC_SEQ_CST); // expect: PF0502
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
