/* Commands that are compared without any function of the C library, once the compiler has inlined what it can. */
#include "table.h"

static const char *number(const char *text, uint64_t *value)
{
	*value = 0;
	while (*text == ' ')
		text++;
	if (*text < '0' || *text > '9')
		return NULL;
	for (; *text >= '0' && *text <= '9'; text++)
		*value = *value * 10 + (uint64_t)(*text - '0');
	return text;
}

static int two(const char *text, uint64_t *one, uint64_t *other)
{
	text = number(text, one);
	return text && number(text, other);
}

int main(int count, char **arguments)
{
	char line[128];
	uint64_t one, other;

	REQUIRE(count == 2);
	table_open(arguments[1]);
	while (fgets(line, sizeof line, stdin)) {
		if (line[0] == 'p' && line[1] == 'u' && line[2] == 't' && line[3] == ' ') {
			if (two(line + 4, &one, &other))
				table_put(one, other);
		} else if (memcmp(line, "erase ", 6) == 0) {
			if (number(line + 6, &one))
				table_delete(one);
		} else if (memcmp(line, "swap", 4) == 0) {
			if (two(line + 4, &one, &other))
				table_swap(one, other);
		} else if (strncmp(line, "up", 2) == 0) {
			if (two(line + 2, &one, &other))
				table_fill(one, other);
		} else if (memcmp(line, "truncate", 8) == 0) {
			table_clear();
		}
	}
	return 0;
}
