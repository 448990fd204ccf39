/* Reads its input with functions that scan, split and convert. Exits with 1 if one of them does not do its work. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "line %d\n", __LINE__); \
			return 1; \
		} \
	} while (0)

int main(int count, char **arguments)
{
	char line[128], copy[128], scanned[128], *rest, *end;
	char *none[] = {"reads", NULL};
	int number[7];
	double last;

	if (count < 2)
		return 2;
	int fd = open(arguments[1], O_CREAT | O_RDWR, 0600);
	if (fd < 0 || ftruncate(fd, 4096) != 0)
		return 2;
	char *pool = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (pool == MAP_FAILED)
		return 2;

	CHECK(fgets(line, sizeof line, stdin));
	/* More arguments than registers. */
	CHECK(sscanf(line, "%d %d %d %d %d %d %d %lf", &number[0], &number[1], &number[2], &number[3], &number[4],
		     &number[5], &number[6], &last) == 8);
	CHECK(number[0] == 1 && number[5] == 6 && number[6] == 7 && last == 8.5);

	CHECK(scanf("%[^\n]", line) == 1 && getchar() == '\n');
	CHECK(strcmp(line, "a,b;c") == 0);
	CHECK(strcmp(strtok(strcpy(copy, line), ","), "a") == 0 && strcmp(strtok(NULL, ","), "b;c") == 0);
	CHECK(strcmp(strtok_r(strcpy(copy, "b;c"), ";", &rest), "b") == 0);
	rest = strcpy(copy, line);
	CHECK(strcmp(strsep(&rest, ";,"), "a") == 0 && strcmp(rest, "b;c") == 0);
	CHECK(strchr(line, 'b') == line + 2 && memchr(line, 'c', 5) == line + 4);
	CHECK(strcspn(line, ";") == 3 && strpbrk(line, ";") == line + 3);

	CHECK(fscanf(stdin, "%[^\n]", scanned) == 1);
	CHECK(strtoul(scanned, &end, 10) == 12 && strtol(end, &end, 16) == 0x1f && atoi(end) == 7);
	CHECK(getopt(1, none, "ab:") == -1);
	pool[0] = 1;
	return 0;
}
