/*
 * The code of the pages about findings, docs/reference/findings, that is wrong only for a recovery. Here it is compiled; what
 * crashes show is tested by the programs in tests/fail and tests/pass.
 */
#include <libpmem.h>
#include <libpmemobj.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define static static __attribute__((unused))

struct entry {
	char value[64];
	uint64_t checksum;
};
struct log {
	uint64_t count;
	struct entry entries[8];
};
#define put put_wrong
#include "PF0103-wrong.inc"
#undef put
void put_right(struct log *log)
{
#include "PF0103-right.inc"
}

struct value {
	uint64_t value, checksum;
};
struct values {
	uint64_t count, values[8], checksum;
	struct value entries[8];
};
uint64_t checksum(const struct values *list);
uint64_t entry_checksum(uint64_t value);
#define list values
#define append append_wrong
#include "PF0301-wrong.inc"
#undef append
#define append append_right
#include "PF0301-right.inc"
#undef append
#undef list

struct user {
	char first[64], last[64];
	struct {
		char first[64], last[64];
	} names[2];
	unsigned current;
};
#define rename_user rename_user_wrong
#include "PF0302-wrong.inc"
#undef rename_user
#define rename_user rename_user_right
#include "PF0302-right.inc"
#undef rename_user

struct node {
	struct node *next;
	PMEMoid left;
};
struct list {
	struct node *head, *old_head;
	uint64_t count;
};
#define push_front push_front_wrong
#include "PF0303-wrong.inc"
#undef push_front
#define push_front push_front_right
#define recover recover_list
#include "PF0303-right.inc"
#undef push_front
#undef recover

struct tree {
	PMEMoid root;
};
PMEMoid allocate_node(struct tree *tree, uint64_t key);
void initialize(struct node *node, uint64_t key);
void visit(PMEMoid node);
#define insert insert_wrong
#define recover recover_tree
#include "PF0401-wrong.inc"
#undef insert
#undef recover
void insert_right(struct tree *tree, PMEMoid oid, uint64_t key)
{
#include "PF0401-right.inc"
}

struct pool {
	int lock;
	uint64_t value, count;
	char names[8][32];
};
void unlock(struct pool *pool);
void repair(struct pool *pool);
#define recover recover_wrong
#include "PF0402-wrong.inc"
#undef recover
#define recover recover_right
#include "PF0402-right.inc"
#undef recover

#define get get_wrong
#include "PF0801-wrong.inc"
#undef get
#define get get_right
#include "PF0801-right.inc"
#undef get

#define move_behind move_behind_wrong
#include "PF0802-wrong.inc"
#undef move_behind
#define move_behind move_behind_right
#include "PF0802-right.inc"
#undef move_behind
