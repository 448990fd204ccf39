// The annotations are those of C.
#include "annotated.c"
