// powerfail: recover = "{bin} {pool} recover"
// The program insists on a mapping that only a file on DAX has.
#define _GNU_SOURCE
#include "../../programs/pm.h"

#ifndef MAP_SYNC
#define MAP_SYNC 0x80000
#endif

int main(int argc, char **argv)
{
	int fd = open(argv[1], O_RDWR | O_CREAT, 0666);
	if (fd < 0 || ftruncate(fd, 4096) != 0)
		return 100;
	char *pool = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
	if (pool == MAP_FAILED)
		return 101;
	char *is_valid = pool, *value = pool + 64;
	if (pm_mode(argc, argv, "recover"))
		return *is_valid && *value != 7;
	*value = 7;
	pm_persist(value);
	*is_valid = 1;
	pm_persist(is_valid);
	_exit(0);
}
