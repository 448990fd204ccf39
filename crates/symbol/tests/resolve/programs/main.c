// Runs the code of btree.c, in the same module or in a library.

void run(void);

int main(void) {
    run();
    return 0;
}
