// powerfail: needs = "-lpmem"
// powerfail: recover = "{bin} {pool} recover"
// powerfail: dump = "{bin} {pool} dump"
// powerfail: ack = "ok (\d+)"
// A copy without a flush, then the flush, then the acknowledgement.
#include <libpmem.h>

#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	char(*slots)[64] = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return 0;
	if (pm_mode(argc, argv, "dump")) {
		for (int i = 0; i < 3 && slots[i][0]; i++)
			printf("%s\n", slots[i]);
		return 0;
	}
	for (int i = 0; i < 3; i++) {
		char text[8] = {(char)('1' + i)};
		pmem_memcpy(slots[i], text, sizeof(text), PMEM_F_MEM_NOFLUSH);
		pmem_persist(slots[i], sizeof(text));
		pm_acknowledge((unsigned long)(1 + i));
	}
	return 0;
}
