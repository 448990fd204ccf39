// Appends records to a log. Recovery of a log with three records attacks what supervises it, in the way that its
// second argument names; it succeeds with any other number of records.
#include "../../../../../tests/programs/pm.h"

#include <signal.h>
#include <sys/mount.h>

#define RECORDS 4

struct pool {
	uint64_t count;
	uint64_t records[RECORDS] PM_LINE;
};

static int attack(const char *name)
{
	if (strcmp(name, "everyone") == 0)
		kill(-1, SIGKILL); // signals everyone
	else if (strcmp(name, "parent") == 0)
		kill(getppid(), SIGKILL); // kills its parent
	else if (strcmp(name, "stop") == 0)
		kill(getppid(), SIGSTOP); // stops its parent
	else if (strcmp(name, "unmount") == 0) {
		umount2("/dev/shm", MNT_DETACH);
		umount2("/", MNT_DETACH);
		return 7;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct pool *pool = pm_open(argv[1], 4096);
	if (argc > 2)
		return pool->count == 3 ? attack(argv[2]) : 0;
	for (uint64_t i = 0; i < RECORDS; i++) {
		pool->records[i] = 100 + i;
		pm_persist(&pool->records[i]);
		pool->count = i + 1;
		pm_persist(&pool->count);
	}
	return 0;
}
