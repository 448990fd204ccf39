/* Saves a note for each command: `safe` syncs it before it gets its name, `fast` does not. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LEN 5000

static char path[4096], temporary[4096];

static int save(char letter, int sync)
{
	char text[LEN];
	memset(text, letter, sizeof(text));
	int file = open(temporary, O_CREAT | O_TRUNC | O_WRONLY, 0600);
	if (file < 0 || write(file, text, sizeof(text)) != (ssize_t)sizeof(text))
		return -1;
	if (sync && fsync(file) != 0)
		return -1;
	close(file);
	return rename(temporary, path);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	snprintf(path, sizeof(path), "%s/note", argv[1]);
	snprintf(temporary, sizeof(temporary), "%s/note.tmp", argv[1]);
	if (argc > 2) {
		char text[LEN + 1];
		int file = open(path, O_RDONLY);
		if (file < 0)
			return 0;
		if (read(file, text, sizeof(text)) != LEN)
			return 1;
		for (int at = 0; at < LEN; at++)
			if (text[at] != text[0] || text[0] == 0)
				return 1;
		return 0;
	}
	char line[64];
	char letter = 'a';
	while (fgets(line, sizeof(line), stdin)) {
		if (strcmp(line, "safe\n") == 0 && save(letter++, 1) != 0)
			return 1;
		if (strcmp(line, "fast\n") == 0 && save(letter++, 0) != 0)
			return 1;
	}
	return 0;
}
