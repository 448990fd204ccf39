/* Commands behind a chain of sscanf. */
#include "table.h"

int main(int count, char **arguments)
{
	char line[128];
	unsigned long one, other;
	unsigned times;

	REQUIRE(count == 2);
	table_open(arguments[1]);
	while (fgets(line, sizeof line, stdin)) {
		if (sscanf(line, "put %lu %lu", &one, &other) == 2)
			table_put(one, other);
		else if (sscanf(line, "delete key %lu", &one) == 1)
			table_delete(one);
		else if (sscanf(line, "swap %lu with %lu", &one, &other) == 2)
			table_swap(one, other);
		else if (sscanf(line, "fill(%lu,%lu)", &one, &other) == 2)
			table_fill(one, other);
		else if (sscanf(line, "clear %u times", &times) == 1)
			table_clear();
	}
	return 0;
}
