// Transactions as the C++ bindings of libpmemobj make them: without a jump buffer, and with exceptions.
// Argument: the pool.
#include <libpmemobj.h>

#include <cstdint>
#include <stdexcept>

#include "pool.h"

namespace {

class Transaction {
public:
	explicit Transaction(PMEMobjpool *pool)
	{
		REQUIRE(pmemobj_tx_begin(pool, nullptr, TX_PARAM_NONE) == 0);
	}
	Transaction(const Transaction &) = delete;
	Transaction &operator=(const Transaction &) = delete;
	~Transaction()
	{
		if (pmemobj_tx_stage() == TX_STAGE_WORK)
			pmemobj_tx_abort(ECANCELED);
		(void)pmemobj_tx_end();
	}
	void commit() { pmemobj_tx_commit(); }
};

template <typename T> class Persistent {
public:
	Persistent &operator=(T value)
	{
		if (pmemobj_tx_stage() == TX_STAGE_WORK)
			pmemobj_tx_add_range_direct(this, sizeof(*this));
		value_ = value;
		return *this;
	}
	operator T() const { return value_; }

private:
	T value_;
};

struct Root {
	Persistent<std::uint64_t> first, second;
};

void change(PMEMobjpool *pool, Root &root, bool fails)
{
	Transaction outer(pool);
	root.first = 1;
	{
		Transaction inner(pool);
		root.second = 2;
		if (fails)
			throw std::runtime_error("given up");
		inner.commit();
	}
	outer.commit();
}

} // namespace

int main(int argc, char **argv)
{
	REQUIRE(argc == 2);
	PMEMobjpool *pool = pmemobj_create(argv[1], "classes", PMEMOBJ_MIN_POOL, 0600);
	REQUIRE(pool);
	Root &root = *static_cast<Root *>(pmemobj_direct(pmemobj_root(pool, sizeof(Root))));
	try {
		change(pool, root, true);
		return 1;
	} catch (const std::runtime_error &) {
		REQUIRE(root.first == 0 && root.second == 0);
	}
	change(pool, root, false);
	REQUIRE(root.first == 1 && root.second == 2);
	pmemobj_close(pool);
	return 0;
}
