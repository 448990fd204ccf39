// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--atomicity 8"
// powerfail: says = "tears the store in main"
// A vector store of 16 bytes, of which the hardware may make only the first 8 durable.
#include <emmintrin.h>

#include "../../programs/pm.h"

struct pool {
	uint64_t pair[2] PM_LINE;
};

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pool->pair[0] != pool->pair[1];
	__m128i both = _mm_set1_epi64x(7);
	__asm__ volatile("movdqu %1, %0" : "=m"(pool->pair) : "x"(both) : "memory"); // expect: PF0301
	pm_persist(pool->pair);
	return 0;
}
