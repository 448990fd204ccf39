// powerfail: recover = "{bin} {pool} recover"
// powerfail: dump = "{bin} {pool} dump"
// powerfail: ack = "ok (\d+)"
// A journal whose commit is called before the answer is sent.
#include "../../programs/pm.h"

class Journal {
public:
	explicit Journal(const char *path)
	    : entries(static_cast<Entry *>(pm_open(path, 4096)))
	{
	}
	void append(std::uint64_t number)
	{
		while (entries[used].number)
			used++;
		entries[used].number = number;
	}
	void commit() { pm_persist(&entries[used]); }
	void dump() const
	{
		for (const Entry *entry = entries; entry->number; entry++)
			std::printf("%lu\n", entry->number);
	}

private:
	struct Entry {
		std::uint64_t number;
	} PM_LINE;
	Entry *entries;
	std::size_t used = 0;
};

int main(int argc, char **argv)
{
	Journal journal(argv[1]);
	if (pm_mode(argc, argv, "recover"))
		return 0;
	if (pm_mode(argc, argv, "dump")) {
		journal.dump();
		return 0;
	}
	for (std::uint64_t number = 41; number <= 43; number++) {
		journal.append(number);
		journal.commit();
		pm_acknowledge(number);
	}
	return 0;
}
