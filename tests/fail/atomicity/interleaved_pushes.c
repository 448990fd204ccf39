// powerfail: needs = "-pthread"
// powerfail: recover = "{bin} {pool} recover"
// powerfail: flags = "--schedules 20"
// Two threads push to a list with atomic operations. Its length is updated later, and recovery treats a list
// that is longer by one as an interrupted push. Two pushes can be interrupted if one thread runs between two
// stores of the other; but the second thread does something else first, so only another order of threads
// shows the bug.
#include <pthread.h>
#include <time.h>

#include "../../programs/pm.h"

struct node {
	uint64_t value PM_LINE;
	uint64_t next;
};

struct pool {
	uint64_t head;
	uint64_t length PM_LINE;
	struct node nodes[16];
};

#define swap(at, old, new) \
	__atomic_compare_exchange_n(at, old, new, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)

static struct pool *pool;

static void push(uint64_t number)
{
	struct node *node = &pool->nodes[number];
	uint64_t head = __atomic_load_n(&pool->head, __ATOMIC_SEQ_CST);
	int swapped;
	node->value = number;
	do {
		node->next = head;
		pm_persist(node);
		swapped = swap(&pool->head, &head, number); // expect: PF0301
	} while (!swapped);
	pm_persist(&pool->head);
	__atomic_fetch_add(&pool->length, 1, __ATOMIC_SEQ_CST);
	pm_persist(&pool->length);
}

static void *first(void *unused)
{
	for (uint64_t i = 1; i <= 3; i++)
		push(i);
	return unused;
}

static void *second(void *unused)
{
	struct timespec used;
	do
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	while (used.tv_sec == 0 && used.tv_nsec < 4000000);
	for (uint64_t i = 4; i <= 6; i++)
		push(i);
	return unused;
}

static int recover(void)
{
	uint64_t length = 0;
	for (uint64_t at = pool->head; at != 0 && length < 16; at = pool->nodes[at].next)
		length++;
	return length != pool->length && length != pool->length + 1;
}

int main(int argc, char **argv)
{
	pthread_t threads[2];
	pool = pm_open(argv[1], 4096);
	if (pm_mode(argc, argv, "recover"))
		return recover();
	PM_REQUIRE(pthread_create(&threads[0], NULL, first, NULL) == 0);
	PM_REQUIRE(pthread_create(&threads[1], NULL, second, NULL) == 0);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	return 0;
}
