// A store two inlined calls deep, a call that returns and one that does not.
//
// A comment `at: NAME` marks the line that a test expects. HERE defines a symbol for the very next
// instruction, so that tests need not guess how the compiler translated a line.

#include <stdio.h>
#include <stdlib.h>

extern const char __ehdr_start[] __attribute__((visibility("hidden")));

#define HERE(name) __asm__ volatile(".globl " #name "\n" #name ":\n\tnop" ::: "memory")
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define NEVER_INLINE __attribute__((noinline, noclone))

ALWAYS_INLINE void persist(volatile long *value) {
    *value = 1;
    HERE(here_persist); // at: persist
}

ALWAYS_INLINE void insert(volatile long *value) {
    *value = 2;
    persist(value); // at: insert
}

NEVER_INLINE void update(volatile long *value) { // at: update begins
    *value = 3;
    insert(value); // at: update
    *value = 4;
    HERE(here_update); // at: update after
}

// Prints its return address, relative to the load address of the module.
NEVER_INLINE void say_caller(const char *name) {
    printf("%s %lx\n", name, (long)((const char *)__builtin_return_address(0) - __ehdr_start));
    fflush(stdout);
}

NEVER_INLINE __attribute__((noreturn)) void give_up(void) {
    printf("give_up %lx\n", (long)((const char *)__builtin_return_address(0) - __ehdr_start));
    fflush(stdout);
    _Exit(0);
}

NEVER_INLINE void call_and_return(void) {
    say_caller("call"); // at: call
    HERE(here_after_call); // at: after call
}

// The call is its last instruction: the code after it belongs to another function.
NEVER_INLINE void call_without_return(void) {
    give_up(); // at: last call
}

void run(void) {
    volatile long value = 0;
    update(&value);
    call_and_return();
    call_without_return();
}
