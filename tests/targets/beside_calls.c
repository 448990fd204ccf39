/* Stores beside `syscall` instructions, as short as stores get: there is no room for a jump in any of them. */
#define _GNU_SOURCE
#include <sys/syscall.h>

#include "pool.h"

/* A function that stores the low byte of its second argument and makes the system call of its third. */
#define BESIDE(name, ...)                                                                               \
	__attribute__((noinline, naked)) static long name(__attribute__((unused)) char *to,             \
							  __attribute__((unused)) long byte,            \
							  __attribute__((unused)) long number)          \
	{                                                                                               \
		__asm__ volatile(__VA_ARGS__ "ret");                                                    \
	}

BESIDE(before_call, "mov %rdx, %rax\n mov %sil, %dl\n mov %dl, (%rdi)\n syscall\n")
BESIDE(after_call, "mov %rdx, %rax\n syscall\n mov %sil, (%rdi)\n nop\n")
BESIDE(between_calls,
       "mov %rdx, %rax\n mov %rdx, %r8\n mov %sil, %dl\n syscall\n mov %dl, (%rdi)\n mov %r8, %rax\n syscall\n")
BESIDE(two_before_call,
       "mov %rdx, %rax\n mov %sil, %dl\n mov %dl, 1(%rdi)\n mov %dl, (%rdi)\n syscall\n xchg %rax, %rcx\n xchg %rax, %rcx\n")
BESIDE(locked_before_call, "mov %rdx, %rax\n mov %sil, %dl\n xchg %dl, (%rdi)\n syscall\n")
BESIDE(call_before_short_ones,
       "mov %rdx, %rax\n mov %sil, %dl\n mov %dl, (%rdi)\n syscall\n"
       "mov %eax, %ecx\n mov %ecx, %eax\n mov $0x11111111, %ecx\n mov $0x11111111, %ecx\n")
BESIDE(jump_over_call,
       "mov %rdx, %rax\n mov %sil, %dl\n test %rdi, %rdi\n jne 1f\n syscall\n 1: mov %dl, (%rdi)\n syscall\n")

int main(int argc, char **argv)
{
	long (*const all[])(char *, long, long) = {
		before_call,	    after_call,		    between_calls,  two_before_call,
		locked_before_call, call_before_short_ones, jump_over_call,
	};
	REQUIRE(argc == 2);
	char *pool = map_pool(argv[1], MIB);
	for (long round = 1; round <= 5; round++) {
		for (size_t at = 0; at < sizeof(all) / sizeof(*all); at++) {
			char *to = pool + 64 * at;
			long result = all[at](to, round, SYS_getpid);
			REQUIRE(*(volatile char *)to == (char)round);
			REQUIRE(result == getpid());
			flush(to);
			sfence();
		}
	}
	return 0;
}
