// Calls of every kind, each with a symbol after it. Never run.

        .text
        .globl  main
        .type   main, @function
main:
        call    labs@PLT
        .globl  behind_stub
behind_stub:
        call    *llabs@GOTPCREL(%rip)
        .globl  behind_slot
behind_slot:
        call    near
        .globl  behind_near
behind_near:
        call    *%rax
        .globl  behind_pointer
behind_pointer:
        ret
        .size   main, . - main

        .type   near, @function
near:
        ret
        .size   near, . - near
        .section .note.GNU-stack, "", @progbits
