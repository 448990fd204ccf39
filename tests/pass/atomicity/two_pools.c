// powerfail: workload = "{bin} {pool} run {pool}.index"
// powerfail: recover = "{bin} {pool} recover {pool}.index"
// Entries in one pool, their index in another. The index must not point beyond the entries.
#include "../../programs/pm.h"

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 4);
	uint64_t *entries = pm_open(argv[1], 4096);
	uint64_t *index = pm_open(argv[3], 4096);
	if (pm_mode(argc, argv, "recover"))
		return *index && entries[*index - 1] == 0;
	for (uint64_t i = 0; i < 3; i++) {
		entries[i] = 10 + i;
		pm_persist(&entries[i]);
		*index = i + 1;
		pm_persist(index);
	}
	return 0;
}
