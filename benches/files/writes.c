/*
 * Writes to ordinary files, for the benchmark of recording and of recoveries.
 *
 *   writes pages DIR N       N writes of 4 KiB with pwrite, to 64 MiB of a file
 *   writes appends DIR N     N appends of 16 bytes
 *   writes tree DIR N        20 files of 5 MiB, synced; then N changes of 512 bytes in them, every tenth synced
 *   writes look DIR          reads a byte of each file: the recovery
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096, FILES = 20, FILE_BYTES = 5 << 20 };

static int open_in(const char *directory, const char *name, int flags)
{
	char path[4096];
	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return open(path, flags, 0644);
}

static int open_number(const char *directory, int number, int flags)
{
	char name[32];
	snprintf(name, sizeof(name), "file%d", number);
	return open_in(directory, name, flags);
}

static void require(int holds)
{
	if (!holds) {
		perror("writes");
		exit(1);
	}
}

static void tree(const char *directory, long count)
{
	static char bytes[1 << 20];
	int files[FILES];
	for (int number = 0; number < FILES; number++) {
		files[number] = open_number(directory, number, O_CREAT | O_RDWR);
		for (size_t at = 0; at < sizeof(bytes); at++)
			bytes[at] = (char)(at * 7 + at / 4096 + (size_t)number);
		for (int part = 0; part < FILE_BYTES / (int)sizeof(bytes); part++)
			require(write(files[number], bytes, sizeof(bytes)) == sizeof(bytes));
		require(fsync(files[number]) == 0);
	}
	for (long number = 0; number < count; number++) {
		memset(bytes, (int)number, 512);
		off_t at = number * 7919 % (FILE_BYTES / 512) * 512;
		require(pwrite(files[number % FILES], bytes, 512, at) == 512);
		if (number % 10 == 9)
			require(fdatasync(files[number % FILES]) == 0);
	}
}

static void look(const char *directory)
{
	for (int number = 0; number < FILES; number++) {
		char byte;
		int file = open_number(directory, number, O_RDONLY);
		if (file >= 0 && read(file, &byte, 1) == 1)
			close(file);
	}
}

int main(int argc, char **argv)
{
	static char bytes[PAGE];
	require(argc >= 3);
	long count = argc > 3 ? atol(argv[3]) : 0;
	if (strcmp(argv[1], "tree") == 0) {
		tree(argv[2], count);
	} else if (strcmp(argv[1], "look") == 0) {
		look(argv[2]);
	} else {
		int is_append = strcmp(argv[1], "appends") == 0;
		int file = open_in(argv[2], "file", O_CREAT | O_WRONLY | (is_append ? O_APPEND : 0));
		for (long number = 0; number < count; number++) {
			memcpy(bytes, &number, sizeof(number));
			if (is_append)
				require(write(file, bytes, 16) == 16);
			else
				require(pwrite(file, bytes, PAGE, number % 16384 * PAGE) == PAGE);
		}
	}
	return 0;
}
