// Assembly code: lines, but no functions; one symbol without a size.

        .text
        .globl  main
        .type   main, @function
main:
        xorl    %eax, %eax
        .globl  here_main
        .type   here_main, @object
here_main:
        ret                     // at: main
        .size   main, . - main

        .globl  bare_label
bare_label:
        nop
        nop                     // at: label
        ret
        .section .note.GNU-stack, "", @progbits
