/* The worst case: only stores. Fills a pool repeatedly, in lines of 64 bytes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	size_t len = 16ul << 20;
	long rounds = argc > 2 ? atol(argv[2]) : 1;
	int fd = open(argv[1], O_RDWR | O_CREAT, 0644);
	if (fd < 0 || ftruncate(fd, (off_t)len) != 0) {
		perror(argv[1]);
		return 1;
	}
	char *pool = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	for (long i = 0; i < rounds; i++)
		memset(pool, (int)i + 1, len);
	printf("%d\n", pool[len - 1]);
	return 0;
}
