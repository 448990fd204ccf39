// A pool, and a file beside it that is removed before (`early`) or after (`late`) it is mapped.
#include "../../../../../tests/programs/pm.h"

int main(int argc, char **argv)
{
	char path[4096];
	if (argc < 3)
		return 2;
	uint64_t *pool = pm_open(argv[1], 4096);
	if (strcmp(argv[2], "recover") == 0)
		return *pool > 1;
	snprintf(path, sizeof(path), "%s.scratch", argv[1]);
	int fd = open(path, O_CREAT | O_RDWR, 0600);
	PM_REQUIRE(fd >= 0 && ftruncate(fd, 4096) == 0);
	if (strcmp(argv[2], "early") == 0)
		PM_REQUIRE(unlink(path) == 0);
	uint64_t *scratch = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	PM_REQUIRE(scratch != MAP_FAILED);
	if (strcmp(argv[2], "late") == 0)
		PM_REQUIRE(unlink(path) == 0);
	*scratch = 5;
	*pool = 1;
	pm_persist(pool);
	return 0;
}
