// A ledger in persistent memory, in C++: entries, and how many of them are valid.
//
// The number of entries is made durable before the entry that it counts. After a power failure in between, the ledger has an
// entry that was never written. With -DFIXED the entry is made durable first.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <emmintrin.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

struct alignas(64) Entry {
	std::int64_t amount;
	std::int64_t balance;
};

class Ledger {
public:
	static Ledger *open(const char *path)
	{
		int fd = ::open(path, O_RDWR | O_CREAT, 0644);
		if (fd < 0 || ftruncate(fd, sizeof(Ledger)) != 0)
			return nullptr;
		void *memory = mmap(nullptr, sizeof(Ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		return memory == MAP_FAILED ? nullptr : static_cast<Ledger *>(memory);
	}

	// Each balance is the sum of the amounts up to it.
	bool is_consistent() const
	{
		std::int64_t sum = 0;
		for (std::uint64_t i = 0; i < count; i++) {
			sum += entries[i].amount;
			if (entries[i].amount == 0 || entries[i].balance != sum)
				return false;
		}
		return true;
	}

	void add(std::int64_t amount)
	{
		Entry &entry = entries[count];
		std::int64_t before = count == 0 ? 0 : entries[count - 1].balance;
		entry.amount = amount;
		entry.balance = before + amount;
#ifdef FIXED
		persist(&entry);
		count = count + 1;
		persist(&count);
#else
		count = count + 1;
		persist(&count);
		persist(&entry); // too late: the count is durable already
#endif
	}

private:
	static void persist(const void *address)
	{
		_mm_clflush(address);
		_mm_sfence();
	}

	alignas(64) std::uint64_t count;
	Entry entries[8];
};

int main(int argc, char **argv)
{
	Ledger *ledger = argc == 2 ? Ledger::open(argv[1]) : nullptr;
	if (ledger == nullptr) {
		std::fprintf(stderr, "usage: ledger POOL\n");
		return 2;
	}
	if (!ledger->is_consistent()) {
		std::fprintf(stderr, "an entry does not add up\n");
		return 1;
	}
	ledger->add(100);
	ledger->add(-30);
	return 0;
}
