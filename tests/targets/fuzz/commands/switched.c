/* Commands of one letter: a switch, then strtoul. */
#include "table.h"

static int numbers(char *text, uint64_t *number, int wanted)
{
	for (int at = 0; at < wanted; at++) {
		char *end;
		number[at] = strtoul(text, &end, 10);
		if (end == text)
			return 0;
		text = end;
	}
	return 1;
}

int main(int count, char **arguments)
{
	char line[128];
	uint64_t number[2];

	REQUIRE(count == 2);
	table_open(arguments[1]);
	while (fgets(line, sizeof line, stdin)) {
		switch (line[0]) {
		case 'p':
			if (numbers(line + 1, number, 2))
				table_put(number[0], number[1]);
			break;
		case 'd':
			if (numbers(line + 1, number, 1))
				table_delete(number[0]);
			break;
		case 'x':
			if (numbers(line + 1, number, 2))
				table_swap(number[0], number[1]);
			break;
		case '+':
			if (numbers(line + 1, number, 2))
				table_fill(number[0], number[1]);
			break;
		case '!':
			if (line[1] == '!')
				table_clear();
			break;
		}
	}
	return 0;
}
