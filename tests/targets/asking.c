/*
 * A library whose constructor asks whether it runs under Valgrind, and whether the tool is pmemcheck, like
 * the PMDK libraries, and remembers the answer.
 */
#include "../programs/pmemcheck_requests.h"

static uint64_t running;
static uint64_t is_pmemcheck;

__attribute__((constructor)) static void ask(void)
{
	static char probe[8];

	running = RUNNING_ON_VALGRIND();
	if (running == 0)
		return;
	REGISTER_MAPPING(probe, sizeof(probe));
	is_pmemcheck = CHECK_MAPPING(probe, sizeof(probe));
	REMOVE_MAPPING(probe, sizeof(probe));
}

/* The answers in the constructor, and the answers now. */
unsigned answers(void);
unsigned answers(void)
{
	return (unsigned)(running * 100 + is_pmemcheck * 10 + RUNNING_ON_VALGRIND());
}
