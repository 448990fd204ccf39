// Inserts pairs whose halves must be equal, one operation each; only the third pair is ever checked. While the third
// is half done, another thread makes a mark of its own.
#include <pthread.h>

#include "../../../../../include/powerfail.h"
#include "../../../../../tests/programs/pm.h"

enum { PAIRS = 5, CHECKED = 2 };

struct pair {
	uint64_t left PM_LINE;
	uint64_t right PM_LINE;
};

static volatile struct pair *pairs;
static pthread_barrier_t half_done, marked;

static void insert(uint64_t number)
{
	powerfail_mark(number, "insert", 6);
	powerfail_operation_begin(number);
	pairs[number].left = 1;
	pm_persist(&pairs[number].left);
	if (number == CHECKED) {
		pthread_barrier_wait(&half_done);
		pthread_barrier_wait(&marked);
	}
	pairs[number].right = 1;
#ifdef FORGETS_LAST
	if (number == PAIRS - 1)
		return;
#endif
	pm_persist(&pairs[number].right);
	powerfail_operation_end(number);
}

static void *make_mark(void *unused)
{
	pthread_barrier_wait(&half_done);
	powerfail_mark(99, "another thread", 14);
	pthread_barrier_wait(&marked);
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t other;
	pairs = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return pairs[CHECKED].left != pairs[CHECKED].right;
	pthread_barrier_init(&half_done, NULL, 2);
	pthread_barrier_init(&marked, NULL, 2);
	PM_REQUIRE(pthread_create(&other, NULL, make_mark, NULL) == 0);
	for (uint64_t number = 0; number < PAIRS; number++)
		insert(number);
	pthread_join(other, NULL);
	return 0;
}
