// powerfail: recover = "{bin} {pool} recover"
// powerfail: dump = "{bin} {pool} dump"
// powerfail: ack = "^ok"
// A date of three fields, packed into one store.
#include "../../programs/pm.h"

class Date {
public:
	void set(std::uint64_t year, std::uint64_t month, std::uint64_t day)
	{
		fields[0] = year << 16 | month << 8 | day;
		pm_persist(&fields[0]);
	}
	void print() const { std::printf("%lu-%lu-%lu\n", fields[0], fields[1], fields[2]); }

private:
	std::uint64_t fields[3];
};

int main(int argc, char **argv)
{
	auto *date = static_cast<Date *>(pm_open(argv[1], 4096));
	if (pm_mode(argc, argv, "recover"))
		return 0;
	if (pm_mode(argc, argv, "dump")) {
		date->print();
		return 0;
	}
	date->set(1999, 12, 31);
	pm_acknowledge(1);
	date->set(2000, 1, 1);
	pm_acknowledge(2);
	return 0;
}
