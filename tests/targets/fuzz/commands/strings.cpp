/* Commands of a C++ program: std::string, compared with ==. */
#include <iostream>
#include <sstream>
#include <string>

#include "table.h"

int main(int count, char **arguments)
{
	std::string line, name;
	uint64_t one, other;

	REQUIRE(count == 2);
	table_open(arguments[1]);
	while (std::getline(std::cin, line)) {
		std::istringstream words(line);
		if (!(words >> name))
			continue;
		if (name == "store") {
			if (words >> one >> other)
				table_put(one, other);
		} else if (name == "forget") {
			if (words >> one)
				table_delete(one);
		} else if (name == "exchange") {
			if (words >> one >> other)
				table_swap(one, other);
		} else if (name == "populate") {
			if (words >> one >> other)
				table_fill(one, other);
		} else if (name == "wipe") {
			table_clear();
		}
	}
	return 0;
}
