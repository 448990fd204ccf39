/*
 * The planted bugs that are built in: -DBUG=N plants one, -DBUGS_ALL all of them, neither none.
 *
 * A line with the comment "bug N: PFxxxx, PFyyyy what" is where a finding about bug N points. One of these codes is
 * usual; for a correctness bug any error at the line is accepted, since its symptom depends on the workload.
 * Without a crash the program behaves the same with and without the bugs.
 */
#ifndef PLANTED_H
#define PLANTED_H

#if defined(BUGS_ALL)
#define PLANTED(number) 1
#elif defined(BUG)
#define PLANTED(number) (BUG == (number))
#else
#define PLANTED(number) 0
#endif

#endif
