/*
 * A program that keeps its settings in a file, and replaces the file by a new one at each start.
 *
 * The new file is renamed over the old one before its content is on the disk. After a power failure the name can be
 * new and the content missing, so both the old and the new settings are lost.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMPLETE "end\n"

/* Reads the settings; 0 if there are none yet, -1 if they are damaged. */
static int load(const char *path)
{
	char text[64] = "";
	int starts = 0;
	FILE *file = fopen(path, "r");
	if (file == NULL)
		return 0;
	size_t length = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	if (length < strlen(COMPLETE) || strcmp(text + length - strlen(COMPLETE), COMPLETE) != 0)
		return -1;
	return sscanf(text, "starts=%d", &starts) == 1 ? starts : -1;
}

static int save(const char *path, const char *temporary, int starts)
{
	char text[64];
	int length = snprintf(text, sizeof(text), "starts=%d\n%s", starts, COMPLETE);
	int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (fd < 0 || write(fd, text, length) != length)
		return -1;
	/* fsync(fd) is missing here. */
	close(fd);
	return rename(temporary, path);
}

int main(int argc, char **argv)
{
	char path[512], temporary[512];
	if (argc != 2) {
		fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
		return 2;
	}
	mkdir(argv[1], 0755);
	snprintf(path, sizeof(path), "%s/settings", argv[1]);
	snprintf(temporary, sizeof(temporary), "%s/settings.new", argv[1]);
	int starts = load(path);
	if (starts < 0) {
		fprintf(stderr, "%s is damaged\n", path);
		return 1;
	}
	if (save(path, temporary, starts + 1) != 0) {
		perror(path);
		return 1;
	}
	return 0;
}
