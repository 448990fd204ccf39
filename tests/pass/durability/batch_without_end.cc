// powerfail: recover = "{bin} {pool} recover"
// A batch flushes each item and ends with a fence.
#include "../../programs/pm.h"

struct Slot {
	std::uint64_t value;
} PM_LINE;

class Batch {
public:
	explicit Batch(Slot *slots) : slots(slots) {}
	void put(int index, std::uint64_t value)
	{
		slots[index].value = value;
		pm_flush(&slots[index]);
	}
	~Batch() { pm_fence(); }

private:
	Slot *slots;
};

int main(int argc, char **argv)
{
	auto *slots = static_cast<Slot *>(pm_open(argv[1], 4096));
	if (pm_mode(argc, argv, "recover"))
		return slots[0].value > 10;
	{
		Batch batch(slots);
		batch.put(0, 10);
		batch.put(1, 11);
		batch.put(2, 12);
	}
	_exit(0);
}
