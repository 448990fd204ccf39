/* Signals and stores to a pool. The first argument selects the test. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>

#include "pool.h"

static char *pool;

static void handle(int number, void (*handler)(int, siginfo_t *, void *), int flags)
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
	sigemptyset(&action.sa_mask);
	REQUIRE(sigaction(number, &action, NULL) == 0);
}

/* A timer that interrupts the program anywhere, until it has fired often enough. */
enum { TICKS = 100 };
static volatile uint64_t ticks;

static void on_tick(int number, siginfo_t *info, void *context)
{
	(void)number, (void)info, (void)context;
	ticks++;
	if (ticks <= TICKS) {
		store8(pool + 8, ticks);
		__atomic_fetch_add((uint64_t *)(pool + 64), 1, __ATOMIC_SEQ_CST);
		flush(pool + 8);
		sfence();
		memset(pool + 4096, (int)ticks, 300);
	}
}

static void timer(void)
{
	handle(SIGALRM, on_tick, SA_RESTART);
	struct itimerval every = {{0, 100}, {0, 100}};
	REQUIRE(setitimer(ITIMER_REAL, &every, NULL) == 0);
	uint64_t round = 0, sum = 0;
	while (ticks < TICKS) {
		round++;
		store8(pool, round);
		*(volatile uint64_t *)(pool + 256) += 3;
		sum += 3;
		REQUIRE(*(volatile uint64_t *)(pool + 256) == sum);
		uint64_t seen = __atomic_fetch_add((uint64_t *)(pool + 320), 1, __ATOMIC_SEQ_CST);
		REQUIRE(seen + 1 == round);
		memcpy(pool + 8192, &round, sizeof(round));
		if (round % 64 == 0) {
			memset(pool + 16384, (int)round, 2048);
			flush(pool);
			sfence();
		}
	}
	struct itimerval off = {{0, 0}, {0, 0}};
	REQUIRE(setitimer(ITIMER_REAL, &off, NULL) == 0);
	REQUIRE(*(uint64_t *)(pool + 64) == TICKS && *(uint64_t *)(pool + 8) == TICKS);
	printf("%lu\n", round);
}

/* All signals blocked, by each of the three functions for that, and also in a thread. */
static void *store_blocked(void *nothing)
{
	sigset_t all, now;
	sigfillset(&all);
	REQUIRE(pthread_sigmask(SIG_BLOCK, &all, NULL) == 0);
	store8(pool + 64, 2);
	sfence();
	REQUIRE(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
	store8(pool + 72, 3);
	REQUIRE(pthread_sigmask(SIG_BLOCK, NULL, &now) == 0);
	REQUIRE(sigismember(&now, SIGUSR1) == 1);
	return nothing;
}

static void blocked(void)
{
	sigset_t all, before;
	sigfillset(&all);
	REQUIRE(sigprocmask(SIG_SETMASK, &all, &before) == 0);
	store8(pool, 1);
	flush(pool);
	sfence();
	pthread_t thread;
	REQUIRE(pthread_create(&thread, NULL, store_blocked, NULL) == 0);
	REQUIRE(pthread_join(thread, NULL) == 0);
	/* It stays pending until it is unblocked. */
	REQUIRE(raise(SIGUSR1) == 0);
	sigset_t pending;
	REQUIRE(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1) == 1);
	signal(SIGUSR1, SIG_IGN);
	REQUIRE(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
	store8(pool + 128, 4);
}

/* A handler during which everything is blocked, and which stores. */
static void on_user(int number, siginfo_t *info, void *context)
{
	(void)info, (void)context;
	store8(pool + 16, (uint64_t)number);
	memset(pool + 64, number, 100);
	sfence();
}

static void full_mask(void)
{
	struct sigaction action = {.sa_sigaction = on_user, .sa_flags = SA_SIGINFO}, found;
	sigfillset(&action.sa_mask);
	REQUIRE(sigaction(SIGUSR2, &action, NULL) == 0);
	REQUIRE(sigaction(SIGUSR2, NULL, &found) == 0);
	REQUIRE(found.sa_sigaction == on_user && found.sa_flags & SA_SIGINFO);
	REQUIRE(sigismember(&found.sa_mask, SIGTERM) == 1);
	store8(pool, 1);
	REQUIRE(raise(SIGUSR2) == 0);
	store8(pool + 8, 2);
}

/* The target's own faults: addresses and instruction pointers as without powerfail. */
static sigjmp_buf back;
static volatile uintptr_t fault_address, fault_instruction;
static volatile int fault_number, fault_code;

static void on_fault(int number, siginfo_t *info, void *context)
{
	ucontext_t *frame = context;
	fault_number = number;
	fault_code = info->si_code;
	fault_address = (uintptr_t)info->si_addr;
	fault_instruction = (uintptr_t)frame->uc_mcontext.gregs[REG_RIP];
	store8(pool + 8, fault_address);
	siglongjmp(back, 1);
}

extern char fault_store[], fault_load[], fault_known[];

__attribute__((noinline)) static void fault_at(volatile char *at)
{
	__asm__ volatile(".globl fault_store\nfault_store:\n\tmovb $1, %0" : "=m"(*at));
}

__attribute__((noinline)) static char fault_read(volatile char *at)
{
	char value;
	__asm__ volatile(".globl fault_load\nfault_load:\n\tmovb %1, %0" : "=r"(value) : "m"(*at));
	return value;
}

/* Stores to the pool first, and to unmapped memory afterwards: by then it is patched. */
__attribute__((noinline)) static void fault_later(volatile uint64_t *at)
{
	__asm__ volatile(".globl fault_known\nfault_known:\n\tmovq %1, %0" : "=m"(*at) : "r"(5UL));
}

static void tell(const char *what, const char *instruction)
{
	printf("%s: signal %d code %d address %lx, instruction %+ld\n", what, fault_number, fault_code,
	       fault_address, (long)(fault_instruction - (uintptr_t)instruction));
}

static void own_faults(void)
{
	handle(SIGSEGV, on_fault, 0);
	handle(SIGBUS, on_fault, 0);
	store8(pool, 1);
	if (sigsetjmp(back, 1) == 0)
		fault_at((char *)0x1230);
	tell("store", fault_store);
	if (sigsetjmp(back, 1) == 0)
		printf("%d", fault_read((char *)0x4560));
	tell("load", fault_load);
	for (volatile int round = 0; round < 3; round++) {
		fault_later((uint64_t *)(pool + 128));
		fault_later((uint64_t *)(pool + 192));
		if (sigsetjmp(back, 1) == 0)
			fault_later((uint64_t *)0x7890);
		tell("known", fault_known);
	}
	store8(pool + 16, 2);
}

/* An unhandled fault ends the target as it would without powerfail. */
static void fatal_fault(void)
{
	store8(pool, 1);
	fault_at((char *)0x1230);
}

/* Its own breakpoints. */
static volatile int traps;

static void on_trap(int number, siginfo_t *info, void *context)
{
	(void)info;
	ucontext_t *frame = context;
	unsigned char before = ((unsigned char *)frame->uc_mcontext.gregs[REG_RIP])[-1];
	REQUIRE(number == SIGTRAP && before == 0xcc);
	traps++;
	store8(pool + 8, (uint64_t)traps);
}

static void own_traps(void)
{
	handle(SIGTRAP, on_trap, 0);
	for (uint64_t round = 0; round < 5; round++) {
		store8(pool, round);
		__asm__ volatile("int3");
		flush(pool);
		sfence();
	}
	printf("%d\n", traps);
}

/* Handlers on an alternate stack. */
static char alternate[64 << 10];

static void on_alternate(int number, siginfo_t *info, void *context)
{
	(void)info, (void)context;
	char here;
	REQUIRE(&here >= alternate && &here < alternate + sizeof(alternate));
	store8(pool + 8, (uint64_t)number);
	memset(pool + 4096, 7, 500);
}

static void alternate_stack(void)
{
	stack_t stack = {.ss_sp = alternate, .ss_size = sizeof(alternate)}, found;
	REQUIRE(sigaltstack(&stack, NULL) == 0);
	REQUIRE(sigaltstack(NULL, &found) == 0 && found.ss_sp == alternate);
	handle(SIGUSR1, on_alternate, SA_ONSTACK);
	for (int round = 0; round < 3; round++) {
		store8(pool, 1);
		REQUIRE(raise(SIGUSR1) == 0);
	}
}

/* A handler that is left with a jump, from the middle of a store. */
static void on_jump(int number)
{
	(void)number;
	store8(pool + 8, ++*(uint64_t *)(pool + 8));
	siglongjmp(back, 1);
}

static void jump_out(void)
{
	struct sigaction action = {.sa_handler = on_jump};
	REQUIRE(sigaction(SIGALRM, &action, NULL) == 0);
	volatile int rounds = 0;
	sigsetjmp(back, 1);
	if (rounds++ < 100) {
		struct itimerval once = {{0, 0}, {0, 100}};
		REQUIRE(setitimer(ITIMER_REAL, &once, NULL) == 0);
		for (uint64_t value = 1;; value++) {
			store8(pool, value);
			/* No later round hides what was left in the middle. */
			memset(pool + 4096 * rounds, (int)value, 777);
			__atomic_fetch_add((uint64_t *)(pool + 64), value, __ATOMIC_SEQ_CST);
			flush(pool);
			sfence();
		}
	}
}

/* A stack that overflows: only a handler on another stack can run. */
static volatile int depth_reached;

static void on_overflow(int number, siginfo_t *info, void *context)
{
	(void)context;
	char here;
	REQUIRE(number == SIGSEGV && info->si_code > 0);
	REQUIRE(&here >= alternate && &here < alternate + sizeof(alternate));
	store8(pool + 8, 11);
	memset(pool + 4096, 7, 500);
	siglongjmp(back, 1);
}

__attribute__((noinline)) static int recurse(volatile char *above)
{
	volatile char frame[512];
	frame[0] = above[0];
	/* Never less than zero, but the compiler does not know. */
	if (++depth_reached < 0)
		return 0;
	return recurse(frame) + frame[1];
}

static void overflow(void)
{
	stack_t stack = {.ss_sp = alternate, .ss_size = sizeof(alternate)};
	REQUIRE(sigaltstack(&stack, NULL) == 0);
	handle(SIGSEGV, on_overflow, SA_ONSTACK);
	for (volatile uint64_t round = 1; round <= 3; round++) {
		store8(pool, round);
		if (sigsetjmp(back, 1) == 0)
			recurse("x");
		REQUIRE(depth_reached > 1000);
		flush(pool);
		sfence();
	}
}

static void *overflow_here(void *unused)
{
	overflow();
	return unused;
}

static void overflow_in_thread(void)
{
	pthread_t thread;
	REQUIRE(pthread_create(&thread, NULL, overflow_here, NULL) == 0);
	REQUIRE(pthread_join(thread, NULL) == 0);
}

/* Masks are read back as they were set. */
static void expect_blocked(int segv, int trap, int usr1)
{
	sigset_t now;
	REQUIRE(pthread_sigmask(SIG_BLOCK, NULL, &now) == 0);
	REQUIRE(sigismember(&now, SIGSEGV) == segv);
	REQUIRE(sigismember(&now, SIGTRAP) == trap);
	REQUIRE(sigismember(&now, SIGUSR1) == usr1);
}

static void *expect_inherited(void *unused)
{
	expect_blocked(1, 0, 1);
	store8(pool + 16, 3);
	return unused;
}

static void on_read_back(int number)
{
	(void)number;
	sigset_t all;
	sigfillset(&all);
	store8(pool + 8, 2);
	REQUIRE(sigprocmask(SIG_BLOCK, &all, NULL) == 0);
	expect_blocked(1, 1, 1);
	store8(pool + 8, 3);
}

static void masks_read_back(void)
{
	sigset_t set, old;
	pthread_t thread;
	expect_blocked(0, 0, 0);
	sigemptyset(&set);
	sigaddset(&set, SIGSEGV);
	sigaddset(&set, SIGUSR1);
	REQUIRE(sigprocmask(SIG_BLOCK, &set, &old) == 0);
	REQUIRE(!sigismember(&old, SIGSEGV));
	expect_blocked(1, 0, 1);
	store8(pool, 1);
	REQUIRE(pthread_create(&thread, NULL, expect_inherited, NULL) == 0);
	REQUIRE(pthread_join(thread, NULL) == 0);
	signal(SIGUSR2, on_read_back);
	REQUIRE(raise(SIGUSR2) == 0);
	expect_blocked(1, 0, 1);
	sigemptyset(&set);
	sigaddset(&set, SIGTRAP);
	REQUIRE(sigprocmask(SIG_SETMASK, &set, &old) == 0);
	REQUIRE(sigismember(&old, SIGSEGV) && !sigismember(&old, SIGTRAP));
	expect_blocked(0, 1, 0);
	REQUIRE(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
	expect_blocked(0, 0, 0);
	/* Waits with everything else blocked, also in the handler. */
	signal(SIGALRM, on_read_back);
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	REQUIRE(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	REQUIRE(raise(SIGALRM) == 0);
	sigfillset(&set);
	sigdelset(&set, SIGALRM);
	sigsuspend(&set);
	expect_blocked(0, 0, 0);
}

/* Stores beyond the end of the file. */
static void bus_errors(void)
{
	handle(SIGBUS, on_fault, 0);
	char *behind = pool + MIB;
	for (volatile int round = 0; round < 3; round++) {
		fault_later((uint64_t *)(pool + 128));
		if (sigsetjmp(back, 1) == 0)
			fault_later((uint64_t *)(behind + 64));
		REQUIRE(fault_number == SIGBUS && fault_address == (uintptr_t)(behind + 64));
		REQUIRE(fault_instruction == (uintptr_t)fault_known);
	}
	if (sigsetjmp(back, 1) == 0)
		printf("%d", fault_read(behind));
	REQUIRE(fault_number == SIGBUS && fault_address == (uintptr_t)behind);
}

/* A store to a part of the pool that was made read-only. */
static void read_only(void)
{
	handle(SIGSEGV, on_fault, 0);
	REQUIRE(mprotect(pool + 4096, 4096, PROT_READ) == 0);
	for (volatile int round = 0; round < 3; round++) {
		fault_later((uint64_t *)(pool + 128));
		if (sigsetjmp(back, 1) == 0)
			fault_later((uint64_t *)(pool + 4096));
		REQUIRE(fault_number == SIGSEGV && fault_address == (uintptr_t)(pool + 4096));
		REQUIRE(fault_instruction == (uintptr_t)fault_known);
	}
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} all[] = {
		{"timer", timer},	    {"blocked", blocked},   {"full_mask", full_mask},
		{"own_faults", own_faults}, {"own_traps", own_traps}, {"fatal_fault", fatal_fault},
		{"alternate_stack", alternate_stack}, {"jump_out", jump_out},
		{"overflow", overflow},	    {"overflow_in_thread", overflow_in_thread},
		{"masks_read_back", masks_read_back}, {"bus_errors", bus_errors},
		{"read_only", read_only},
	};
	REQUIRE(argc == 3);
	pool = map_fd(open_pool(argv[2], MIB), MIB + 65536, 0);
	for (size_t at = 0; at < sizeof(all) / sizeof(*all); at++) {
		if (strcmp(argv[1], all[at].name) == 0) {
			all[at].run();
			return 0;
		}
	}
	return 98;
}
