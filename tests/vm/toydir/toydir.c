// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * A toy directory in persistent memory, with planted bugs: what `cargo xtask vm` checks powerfail with.
 *
 * Persistent memory begins with a head (magic, journal), then a table of slots. A slot is an entry: a name and a text. Each
 * operation changes one or two slots: it writes their new content to the journal, sets `valid`, copies the content to the slots
 * and clears `valid`. The journal of a crash is copied to the slots once more when the module is loaded.
 *
 * /proc/toydir takes commands ("create NAME", "write NAME TEXT", "rename OLD NEW", "remove NAME", "halt now") and
 * lists the entries. `bug` selects a planted bug; 0 is none. The comments "BUG n" mark the places.
 */
#include <linux/io.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>
#include <asm/special_insns.h>

MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("A toy directory in persistent memory, with planted bugs");

static unsigned long base = 0x10000000;
module_param(base, ulong, 0444);
MODULE_PARM_DESC(base, "physical address of persistent memory");
static int bug;
module_param(bug, int, 0444);
MODULE_PARM_DESC(bug, "the planted bug");

#define MAGIC 0x706f776572746f79ULL
#define SLOTS 32
#define LINE 64

struct slot {
	u64 used;
	char name[56];
	u64 len;
	char text[56];
};

struct journal {
	u64 valid;
	u64 pad0[7];
	u64 count;
	u64 number[2];
	u64 pad1[5];
	struct slot image[2];
};

struct head {
	u64 magic;
	u64 pad0[7];
	struct journal journal;
};

static struct head *head;
static struct slot *slots;
static DEFINE_MUTEX(lock);
/* Operations stop when their journal is valid, and fail: they are completed when the module is loaded again. */
static bool halting;

static noinline void persist_lines(const void *from, size_t len)
{
	uintptr_t at = (uintptr_t)from & ~(uintptr_t)(LINE - 1);

	for (; at < (uintptr_t)from + len; at += LINE)
		clwb((void *)at);
}

static void fence(void)
{
	asm volatile("sfence" ::: "memory");
}

static struct slot *find(const char *name)
{
	int i;

	for (i = 0; i < SLOTS; i++)
		if (slots[i].used && !strncmp(slots[i].name, name, sizeof(slots[i].name)))
			return &slots[i];
	return NULL;
}

static struct slot *find_free(void)
{
	int i;

	for (i = 0; i < SLOTS; i++)
		if (!slots[i].used)
			return &slots[i];
	return NULL;
}

/* Writes the new content of slots to the journal. */
static noinline void log_images(struct slot **which, const struct slot *image, int count)
{
	struct journal *journal = &head->journal;
	int i;

	if (bug == 2) {
		/* BUG 2: the journal is valid before its content is there. */
		WRITE_ONCE(journal->valid, 1);
		persist_lines(&journal->valid, sizeof(journal->valid));
		fence();
	}
	for (i = 0; i < count; i++) {
		journal->number[i] = which[i] - slots;
		journal->image[i] = image[i];
	}
	WRITE_ONCE(journal->count, count);
	if (bug == 10) {
		/* BUG 10: only the first line of each image is flushed. */
		persist_lines(&journal->count, LINE);
		for (i = 0; i < count; i++)
			persist_lines(&journal->image[i], LINE);
		fence();
		return;
	}
	if (bug != 13) /* BUG 13: the line with the count and the numbers is not flushed. */
		persist_lines(&journal->count, LINE);
	if (bug != 1) /* BUG 1: the entries of the journal are not flushed. */
		persist_lines(journal->image, count * sizeof(struct slot));
	if (bug != 3) /* BUG 3: flushed, but no fence before `valid`. */
		fence();
}

/* Makes the journal count. */
static noinline void log_commit(void)
{
	struct journal *journal = &head->journal;

	WRITE_ONCE(journal->valid, 1);
	if (bug == 12)
		return; /* BUG 12: the commit is not made durable before slots change. */
	persist_lines(&journal->valid, sizeof(journal->valid));
	fence();
}

/* Copies the journal to the slots. */
static noinline void apply(void)
{
	struct journal *journal = &head->journal;
	u64 i;

	for (i = 0; i < journal->count && i < 2; i++) {
		struct slot *slot = &slots[journal->number[i] % SLOTS];

		*slot = journal->image[i];
		if (bug != 6) /* BUG 6: slots are not flushed before the journal is cleared. */
			persist_lines(slot, sizeof(*slot));
	}
	fence();
}

/* Makes the journal free again. */
static noinline void retire(void)
{
	WRITE_ONCE(head->journal.valid, 0);
	if (bug == 7)
		return; /* BUG 7: the journal is used again before it is surely free. */
	persist_lines(&head->journal.valid, sizeof(head->journal.valid));
	fence();
}

static noinline void change(struct slot **which, const struct slot *image, int count)
{
	log_images(which, image, count);
	log_commit();
	if (halting)
		return; /* The journal stays behind, as after a crash. */
	apply();
	retire();
}

static noinline int create_entry(const char *name)
{
	struct slot *slot = find_free();
	struct slot image = { .used = 1 };

	if (!slot || find(name))
		return -EEXIST;
	strscpy(image.name, name, sizeof(image.name));
	if (bug == 8) {
		/* BUG 8: without the journal, and the name is not durable before the slot is in use. */
		WRITE_ONCE(slot->used, 1);
		persist_lines(&slot->used, sizeof(slot->used));
		fence();
		memcpy(slot->name, image.name, sizeof(slot->name));
		slot->len = 0;
		persist_lines(slot, sizeof(*slot));
		fence();
		return 0;
	}
	change(&slot, &image, 1);
	return 0;
}

static noinline int write_entry(const char *name, const char *text)
{
	struct slot *slot = find(name);
	struct slot image;

	if (!slot)
		return -ENOENT;
	image = *slot;
	image.len = min(strlen(text), sizeof(image.text));
	memset(image.text, 0, sizeof(image.text));
	memcpy(image.text, text, image.len);
	if (bug == 9) {
		/* BUG 9: without the journal, and the length comes before the text. */
		WRITE_ONCE(slot->len, image.len);
		persist_lines(&slot->len, sizeof(slot->len));
		fence();
		memcpy(slot->text, image.text, sizeof(slot->text));
		persist_lines(slot->text, sizeof(slot->text));
		fence();
		return 0;
	}
	change(&slot, &image, 1);
	return 0;
}

static noinline int rename_entry(const char *old, const char *new)
{
	struct slot *from = find(old), *to = find(new);
	struct slot *which[2];
	struct slot image[2] = {};

	if (!from)
		return -ENOENT;
	if (!to)
		to = find_free();
	if (!to || to == from)
		return -ENOSPC;
	image[0] = *from;
	strscpy_pad(image[0].name, new, sizeof(image[0].name));
	which[0] = to;
	which[1] = from;
	if (bug == 4) {
		/* BUG 4: two updates, so that a crash between them leaves both names. */
		change(&which[0], &image[0], 1);
		change(&which[1], &image[1], 1);
		return 0;
	}
	change(which, image, 2);
	return 0;
}

static noinline int remove_entry(const char *name)
{
	struct slot *slot = find(name);
	struct slot image = {};

	if (!slot)
		return -ENOENT;
	if (bug == 11) {
		/* BUG 11: the removal is never made durable. */
		WRITE_ONCE(slot->used, 0);
		return 0;
	}
	change(&slot, &image, 1);
	return 0;
}

/* Completes what a crash has interrupted. */
static noinline void recover(void)
{
	struct journal *journal = &head->journal;

	if (!journal->valid)
		return;
	if (bug == 5) {
		/* BUG 5: not idempotent. An entry of the journal is used up before its slot is durable. */
		while (journal->count) {
			u64 last = journal->count - 1;
			struct slot *slot = &slots[journal->number[last] % SLOTS];

			WRITE_ONCE(journal->count, last);
			persist_lines(&journal->count, sizeof(journal->count));
			fence();
			*slot = journal->image[last];
			persist_lines(slot, sizeof(*slot));
			fence();
		}
		retire();
		return;
	}
	apply();
	retire();
}

static int command(char *text)
{
	char *verb = strsep(&text, " ");
	char *first = strsep(&text, " ");

	if (!first)
		return -EINVAL;
	if (!strcmp(verb, "create"))
		return create_entry(first);
	if (!strcmp(verb, "remove"))
		return remove_entry(first);
	if (!strcmp(verb, "halt")) {
		halting = true;
		return 0;
	}
	if (!text)
		return -EINVAL;
	if (!strcmp(verb, "write"))
		return write_entry(first, text);
	if (!strcmp(verb, "rename"))
		return rename_entry(first, text);
	return -EINVAL;
}

static ssize_t toydir_write(struct file *file, const char __user *from, size_t len, loff_t *at)
{
	char text[160];
	bool halts;
	int result;

	if (len >= sizeof(text) || copy_from_user(text, from, len))
		return -EINVAL;
	text[len] = 0;
	mutex_lock(&lock);
	halts = halting;
	result = command(strim(text));
	mutex_unlock(&lock);
	if (halts && !result)
		result = -EIO;
	return result ? result : len;
}

static int toydir_show(struct seq_file *to, void *unused)
{
	int i;

	mutex_lock(&lock);
	for (i = 0; i < SLOTS; i++)
		if (slots[i].used)
			seq_printf(to, "%.56s %.*s\n", slots[i].name, (int)min(slots[i].len, (u64)56), slots[i].text);
	mutex_unlock(&lock);
	return 0;
}

static int toydir_open(struct inode *inode, struct file *file)
{
	return single_open(file, toydir_show, NULL);
}

static const struct proc_ops operations = {
	.proc_open = toydir_open,
	.proc_read = seq_read,
	.proc_write = toydir_write,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
};

static int __init toydir_init(void)
{
	head = memremap(base, sizeof(*head) + SLOTS * sizeof(struct slot), MEMREMAP_WB);
	if (!head)
		return -ENOMEM;
	slots = (struct slot *)(head + 1);
	if (head->magic != MAGIC) {
		memset(head, 0, sizeof(*head) + SLOTS * sizeof(struct slot));
		persist_lines(head, sizeof(*head) + SLOTS * sizeof(struct slot));
		fence();
		WRITE_ONCE(head->magic, MAGIC);
		persist_lines(&head->magic, sizeof(head->magic));
		fence();
	} else {
		recover();
	}
	if (!proc_create("toydir", 0600, NULL, &operations)) {
		memunmap(head);
		return -ENOMEM;
	}
	return 0;
}

static void __exit toydir_exit(void)
{
	remove_proc_entry("toydir", NULL);
	memunmap(head);
}

module_init(toydir_init);
module_exit(toydir_exit);
