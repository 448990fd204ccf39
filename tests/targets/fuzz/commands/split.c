/* Commands between commas: strtok_r, then a chain of strcmp. */
#include "table.h"

int main(int count, char **arguments)
{
	char line[128], *word[4], *rest;

	REQUIRE(count == 2);
	table_open(arguments[1]);
	while (fgets(line, sizeof line, stdin)) {
		int words = 0;
		for (char *from = line; words < 4; from = NULL) {
			word[words] = strtok_r(from, ",\n", &rest);
			if (!word[words])
				break;
			words++;
		}
		if (words == 3 && strcmp(word[0], "insert") == 0)
			table_put(strtoul(word[1], NULL, 10), strtoul(word[2], NULL, 10));
		else if (words == 2 && strcmp(word[0], "remove") == 0)
			table_delete(strtoul(word[1], NULL, 10));
		else if (words == 3 && strcmp(word[0], "exchange") == 0)
			table_swap(strtoul(word[1], NULL, 10), strtoul(word[2], NULL, 10));
		else if (words == 3 && strcmp(word[0], "range") == 0)
			table_fill(strtoul(word[1], NULL, 10), strtoul(word[2], NULL, 10));
		else if (words == 2 && strcmp(word[0], "reset") == 0 && strcmp(word[1], "everything") == 0)
			table_clear();
	}
	return 0;
}
