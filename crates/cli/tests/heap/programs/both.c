/* A pool in a file, and memory of the persistent heap that it points to. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pm.h"

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	/* The heap comes first. */
	uint64_t *number = malloc(sizeof *number);
	int file = open(argv[1], O_RDWR | O_CREAT, 0600);
	if (file < 0 || ftruncate(file, 4096) != 0)
		return 3;
	uint64_t **place = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (place == MAP_FAILED)
		return 4;
	if (argc > 2)
		return *place && **place != 42;
	*number = 42; // planted
#ifndef BUG
	pm_persist(number, sizeof *number);
#endif
	*place = number;
	pm_persist(place, sizeof *place);
	return 0;
}
