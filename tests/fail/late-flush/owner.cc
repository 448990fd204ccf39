// powerfail: flags = "--deny warnings --only late-flush,durability,redundant-flush"
// The constructor leaves the flush of its field to the destructor.
#include "../../programs/pm.h"

struct Pool {
	uint64_t owner;
	PM_LINE uint64_t values[16][8];
};

class Session {
public:
	Session(Pool *pool, uint64_t owner) : pool(pool)
	{
		pool->owner = owner; // expect: PF0605
	}

	~Session()
	{
		pm_persist(&pool->owner);
	}

	void set(uint64_t index, uint64_t value)
	{
		pool->values[index][0] = value;
		pm_persist(pool->values[index]);
	}

private:
	Pool *pool;
};

int main(int argc, char **argv)
{
	PM_REQUIRE(argc == 2);
	Session session(static_cast<Pool *>(pm_open(argv[1], 8192)), 5);
	for (uint64_t i = 0; i < 12; i++)
		session.set(i, i + 1);
	return 0;
}
