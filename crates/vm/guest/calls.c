// Runs a command in the guest and tells the host of each system call that changes what is stored.
//
//   calls MEMORY MARKS MAX ROOT LIST COMMAND...
//
// The command and all its children are traced. When a call returns that has changed a file system or a device, its number is
// stored as a mark, and it is told on descriptor 3: the line of the workload, the number, the name of the call and the path. Then
// LIST, a program, lists what is stored, while the command waits; if LIST is empty, nothing is listed.
//
// MEMORY is the file with the marks, at the offset MARKS: the line of the workload is read there, the number of a call is stored
// behind it. A line that makes more than MAX calls is compared as a whole, because each listing takes its time: the next call is
// told, and no other. ROOT is where the file system is mounted, and only what happens in it counts. If ROOT is empty, everything counts
// but what the initial file system, temporary files, pipes and terminals are used for.
//
// There is no library: the guest has none, and a static one is not on every computer that powerfail is built on.
#include <asm/stat.h>
#include <asm/unistd.h>
#include <linux/errno.h>
#include <linux/fcntl.h>
#include <linux/limits.h>
#include <linux/mman.h>
#include <linux/ptrace.h>
#include <linux/signal.h>
#include <linux/stat.h>
#include <linux/types.h>
#include <linux/uio.h>
#include <linux/wait.h>

#define TOLD_FD 3
// The marks: the line of the workload, and the number of a call that has returned.
#define LINE_MARK 0
#define CALL_MARK 2
#define MARKS_LEN 4096
#define TRACEES_MAX 256
#define MAJOR_MEMORY 1
#define MAJOR_TTY 4
#define MAJOR_CONSOLE 5

typedef unsigned long word;

static long call(word number, word a, word b, word c, word d, word e, word f)
{
	register word r10 asm("r10") = d;
	register word r8 asm("r8") = e;
	register word r9 asm("r9") = f;
	long result;

	asm volatile("syscall"
		     : "=a"(result)
		     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
		     : "rcx", "r11", "memory");
	return result;
}

#define SYSTEM(name, ...) PAD(__NR_##name, ##__VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define PAD(number, a, b, c, d, e, f, ...) \
	call(number, (word)(a), (word)(b), (word)(c), (word)(d), (word)(e), (word)(f))

// The compiler calls these for structures and loops of its own making.
void *memset(void *to, int value, word len)
{
	volatile char *at = to;

	while (len--)
		*at++ = (char)value;
	return to;
}

void *memcpy(void *to, const void *from, word len)
{
	volatile char *at = to;
	const char *source = from;

	while (len--)
		*at++ = *source++;
	return to;
}

static word length(const char *text)
{
	word len = 0;

	while (text[len])
		len++;
	return len;
}

// A text that is put together. What does not fit is left out.
struct text {
	word len;
	char bytes[PATH_MAX + 128];
};

static void add(struct text *text, const char *more)
{
	while (*more && text->len + 1 < sizeof(text->bytes))
		text->bytes[text->len++] = *more++;
	text->bytes[text->len] = 0;
}

static void add_number(struct text *text, word number)
{
	char digits[24];
	word at = sizeof(digits) - 1;

	digits[at] = 0;
	do
		digits[--at] = (char)('0' + number % 10);
	while (number /= 10);
	add(text, digits + at);
}

static void fail(const char *what)
{
	SYSTEM(write, 2, "calls: ", 7);
	SYSTEM(write, 2, what, length(what));
	SYSTEM(write, 2, "\n", 1);
	SYSTEM(exit_group, 125);
}

// How a call names what it changes.
enum names {
	FD_0 = 1, // a descriptor, the first argument
	FD_2, // a descriptor, the third argument
	PATH_0, // a path, the first argument
	PATH_1, // a path, the second argument
	AT_0, // a directory and a path, from the first argument on
	AT_1,
	AT_2,
	OPENED, // the descriptor that it returns
	ADDRESS, // an address of a mapping
	EVERYTHING,
};

struct kind {
	const char *name;
	unsigned char names;
};

static const struct kind kinds[] = {
	[__NR_write] = { "write", FD_0 },
	[__NR_pwrite64] = { "pwrite64", FD_0 },
	[__NR_writev] = { "writev", FD_0 },
	[__NR_pwritev] = { "pwritev", FD_0 },
	[__NR_pwritev2] = { "pwritev2", FD_0 },
	[__NR_sendfile] = { "sendfile", FD_0 },
	[__NR_splice] = { "splice", FD_2 },
	[__NR_copy_file_range] = { "copy_file_range", FD_2 },
	[__NR_ftruncate] = { "ftruncate", FD_0 },
	[__NR_fallocate] = { "fallocate", FD_0 },
	[__NR_fchmod] = { "fchmod", FD_0 },
	[__NR_fchown] = { "fchown", FD_0 },
	[__NR_ioctl] = { "ioctl", FD_0 },
	[__NR_fsync] = { "fsync", FD_0 },
	[__NR_fdatasync] = { "fdatasync", FD_0 },
	[__NR_syncfs] = { "syncfs", FD_0 },
	[__NR_sync] = { "sync", EVERYTHING },
	[__NR_msync] = { "msync", ADDRESS },
	[__NR_open] = { "open", OPENED },
	[__NR_creat] = { "creat", OPENED },
	[__NR_openat] = { "openat", OPENED },
	[__NR_truncate] = { "truncate", PATH_0 },
	[__NR_mkdir] = { "mkdir", PATH_0 },
	[__NR_rmdir] = { "rmdir", PATH_0 },
	[__NR_unlink] = { "unlink", PATH_0 },
	[__NR_chmod] = { "chmod", PATH_0 },
	[__NR_chown] = { "chown", PATH_0 },
	[__NR_lchown] = { "lchown", PATH_0 },
	[__NR_mknod] = { "mknod", PATH_0 },
	[__NR_rename] = { "rename", PATH_1 },
	[__NR_link] = { "link", PATH_1 },
	[__NR_symlink] = { "symlink", PATH_1 },
	[__NR_mkdirat] = { "mkdirat", AT_0 },
	[__NR_unlinkat] = { "unlinkat", AT_0 },
	[__NR_fchmodat] = { "fchmodat", AT_0 },
	[__NR_fchownat] = { "fchownat", AT_0 },
	[__NR_mknodat] = { "mknodat", AT_0 },
	[__NR_symlinkat] = { "symlinkat", AT_1 },
	[__NR_renameat] = { "renameat", AT_2 },
	[__NR_renameat2] = { "renameat2", AT_2 },
	[__NR_linkat] = { "linkat", AT_2 },
};

struct tracee {
	int pid;
	// It waits until the call of another one has returned.
	_Bool is_held;
	// Its call in flight, if it is one of those above: otherwise the number is that of none.
	word number;
	word arguments[6];
};

static struct tracee tracees[TRACEES_MAX];
// The one whose call is in flight.
static struct tracee *busy;
static volatile word *marks;
static const char *root;
static const char *list;
static char **environment;
// The devices that do not count, or the only one that counts.
static word devices[4];
static word device_count;
static word processes_device;
static word last_number;
static word last_line, calls_of_line, calls_max;

#define NONE (~0ul)

static struct tracee *tracee_of(int pid)
{
	struct tracee *unused = 0;

	for (word i = 0; i < TRACEES_MAX; i++) {
		if (tracees[i].pid == pid)
			return &tracees[i];
		if (!tracees[i].pid && !unused)
			unused = &tracees[i];
	}
	return unused;
}

// A path of /proc that stands for a file of a tracee.
static void file_of(struct text *path, int pid, const char *what)
{
	path->len = 0;
	add(path, "/proc/");
	add_number(path, (word)pid);
	add(path, what);
}

static void descriptor_path(struct text *path, int pid, word descriptor)
{
	file_of(path, pid, "/fd/");
	add_number(path, (unsigned)descriptor);
}

// Whether what is stored in a file is watched.
static _Bool is_watched(const struct stat *status, const struct kind *kind)
{
	word type = status->st_mode & S_IFMT;
	word major = (status->st_rdev >> 8) & 0xfff;

	if (type == S_IFIFO || type == S_IFSOCK)
		return 0;
	if (*root)
		return type != S_IFCHR && type != S_IFBLK && status->st_dev == devices[0];
	if (type == S_IFCHR &&
	    (major == MAJOR_MEMORY || major == MAJOR_TTY || major == MAJOR_CONSOLE))
		return 0;
	if (type == S_IFBLK || type == S_IFCHR)
		return kind->names != OPENED;
	// To open a file of /proc stores nothing; to write to it may.
	if (status->st_dev == processes_device)
		return kind->names == FD_0;
	for (word i = 0; i < device_count; i++)
		if (status->st_dev == devices[i])
			return 0;
	return 1;
}

static _Bool reads_text(int pid, word address, char *to, word room)
{
	struct iovec here = { .iov_base = to }, there = { .iov_base = (void *)address };
	word got = 0;

	// Not beyond the end of a page: the next one may not be mapped.
	while (got < room) {
		word part = 4096 - (address + got) % 4096;
		long count;

		if (part > room - got)
			part = room - got;
		here.iov_base = to + got;
		here.iov_len = there.iov_len = part;
		there.iov_base = (void *)(address + got);
		count = SYSTEM(process_vm_readv, pid, &here, 1, &there, 1, 0);
		if (count <= 0)
			return 0;
		for (long i = 0; i < count; i++)
			if (!to[got + (word)i])
				return 1;
		got += (word)count;
	}
	return 0;
}

// The path of a call as this process can open it: `directory` is a descriptor of the tracee.
static _Bool named_path(struct text *path, const struct tracee *it, long directory, word address)
{
	static char name[PATH_MAX];

	if (!reads_text(it->pid, address, name, sizeof(name)))
		return 0;
	if (name[0] == '/') {
		path->len = 0;
	} else {
		if ((int)directory == AT_FDCWD)
			file_of(path, it->pid, "/cwd");
		else
			descriptor_path(path, it->pid, (word)directory);
		add(path, "/");
	}
	add(path, name);
	return 1;
}

static word hexadecimal(const char **at)
{
	word value = 0;

	for (;; ++*at) {
		char digit = **at;

		if (digit >= '0' && digit <= '9')
			value = value * 16 + (word)(digit - '0');
		else if (digit >= 'a' && digit <= 'f')
			value = value * 16 + (word)(digit - 'a') + 10;
		else
			return value;
	}
}

// The file that is mapped at an address, as a line of /proc/PID/maps names it, and the offset in the file.
static _Bool mapped_path(struct text *path, int pid, word address, word *offset)
{
	static char line[PATH_MAX + 128];
	word len = 0;
	long file;
	char byte;

	file_of(path, pid, "/maps");
	file = SYSTEM(open, path->bytes, O_RDONLY | O_CLOEXEC, 0);
	if (file < 0)
		return 0;
	path->len = 0;
	while (SYSTEM(read, file, &byte, 1) == 1) {
		const char *at = line;
		word begin, end;

		if (byte != '\n') {
			if (len + 1 < sizeof(line))
				line[len++] = byte;
			continue;
		}
		line[len] = 0;
		len = 0;
		begin = hexadecimal(&at);
		at++;
		end = hexadecimal(&at);
		if (address < begin || address >= end)
			continue;
		// Behind the permissions.
		at += length(" rw-s ");
		*offset = hexadecimal(&at) + (address - begin);
		while (*at && *at != '/')
			at++;
		add(path, at);
		break;
	}
	SYSTEM(close, file);
	return path->len > 0;
}

// Whether a call changes something that is watched, and its path. Of calls that open a file this is known when they have
// returned: `result` is then the descriptor.
static _Bool changes(const struct tracee *it, const struct kind *kind, long result, struct text *path)
{
	struct stat status;
	word names = kind->names;

	path->len = 0;
	path->bytes[0] = 0;
	if (names == EVERYTHING)
		return 1;
	if (names == ADDRESS) {
		word offset = 0;

		if (!(it->arguments[2] & MS_SYNC) || !mapped_path(path, it->pid, it->arguments[0], &offset) ||
		    SYSTEM(stat, path->bytes, &status) || !is_watched(&status, kind))
			return 0;
		// Of a part of a file nothing is said.
		if (offset || it->arguments[1] < (word)status.st_size)
			path->len = path->bytes[0] = 0;
		return 1;
	}
	if (names == OPENED) {
		descriptor_path(path, it->pid, (word)result);
	} else if (names == FD_0 || names == FD_2) {
		descriptor_path(path, it->pid, it->arguments[names == FD_2 ? 2 : 0]);
	} else if (names == PATH_0 || names == PATH_1) {
		if (!named_path(path, it, AT_FDCWD, it->arguments[names == PATH_1]))
			return 0;
	} else {
		word at = names - AT_0;

		if (!named_path(path, it, (long)it->arguments[at], it->arguments[at + 1]))
			return 0;
	}
	if (names >= PATH_0 && names <= AT_2) {
		// What the path names may not exist yet or any more, but its directory does.
		static struct text directory;

		directory = *path;
		while (directory.len > 1 && directory.bytes[directory.len - 1] == '/')
			directory.len--;
		while (directory.len > 1 && directory.bytes[directory.len - 1] != '/')
			directory.len--;
		directory.bytes[directory.len] = 0;
		return SYSTEM(stat, directory.bytes, &status) == 0 && is_watched(&status, kind);
	}
	return SYSTEM(stat, path->bytes, &status) == 0 && is_watched(&status, kind);
}

static _Bool may_create(const struct tracee *it)
{
	static struct text path;
	struct stat status;
	_Bool is_at = it->number == __NR_openat;
	word flags = it->arguments[is_at ? 2 : 1];
	long directory = is_at ? (long)it->arguments[0] : AT_FDCWD;

	if (it->number != __NR_creat && !(flags & (O_CREAT | O_TRUNC)))
		return 0;
	// To open a pipe waits for its other end, which must not wait for this call.
	return !named_path(&path, it, directory, it->arguments[is_at]) || SYSTEM(stat, path.bytes, &status) ||
	       (status.st_mode & S_IFMT) != S_IFIFO;
}

static void list_what_is_stored(void)
{
	long child = SYSTEM(fork);

	if (child < 0)
		fail("cannot fork");
	if (!child) {
		const char *words[] = { list, 0 };

		SYSTEM(dup2, TOLD_FD, 1);
		SYSTEM(dup2, TOLD_FD, 2);
		SYSTEM(execve, list, words, environment);
		fail("cannot run the program that lists");
	}
	SYSTEM(wait4, child, 0, __WALL, 0);
}

// The real name of a file that a path of /proc stands for. Others stay as they are.
static void resolve(struct text *path)
{
	static struct text target;
	long len = SYSTEM(readlink, path->bytes, target.bytes, sizeof(target.bytes) - 1);

	if (len <= 0)
		return;
	target.bytes[len] = 0;
	target.len = (word)len;
	*path = target;
}

static void tell(const struct kind *kind, struct text *path, _Bool is_descriptor)
{
	static struct text told;

	if (is_descriptor)
		resolve(path);
	told.len = 0;
	add(&told, "\001call ");
	add_number(&told, marks[LINE_MARK]);
	add(&told, " ");
	add_number(&told, last_number);
	add(&told, " ");
	add(&told, kind->name);
	if (path->len && (is_descriptor || kind->names == ADDRESS)) {
		add(&told, " ");
		add(&told, path->bytes);
	}
	for (word i = 1; i < told.len; i++)
		if (told.bytes[i] < ' ' && told.bytes[i] >= 0)
			told.bytes[i] = '?';
	add(&told, "\n");
	SYSTEM(write, TOLD_FD, told.bytes, told.len);
}

// A call has returned.
static void returned(struct tracee *it, long result)
{
	static struct text path;
	const struct kind *kind = &kinds[it->number];
	_Bool is_descriptor = kind->names == FD_0 || kind->names == FD_2 || kind->names == OPENED;

	// What has failed has changed nothing.
	if (result < 0 || !changes(it, kind, result, &path))
		return;
	if (marks[LINE_MARK] != last_line) {
		last_line = marks[LINE_MARK];
		calls_of_line = 0;
	}
	if (++calls_of_line > calls_max + 1)
		return;
	last_number++;
	marks[CALL_MARK] = last_number;
	tell(kind, &path, is_descriptor);
	if (*list && calls_of_line <= calls_max)
		list_what_is_stored();
}

static void resume(const struct tracee *it, int signal)
{
	SYSTEM(ptrace, PTRACE_SYSCALL, it->pid, 0, signal);
}

static void release_held(void)
{
	busy = 0;
	for (word i = 0; i < TRACEES_MAX && !busy; i++)
		if (tracees[i].pid && tracees[i].is_held) {
			tracees[i].is_held = 0;
			busy = &tracees[i];
			resume(busy, 0);
		}
}

static void at_system_call(struct tracee *it)
{
	static struct ptrace_syscall_info info;
	static struct text path;

	if (SYSTEM(ptrace, PTRACE_GET_SYSCALL_INFO, it->pid, sizeof(info), &info) <= 0)
		return resume(it, 0);
	if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
		const struct kind *kind;

		it->number = NONE;
		if (info.entry.nr >= sizeof(kinds) / sizeof(kinds[0]) || !kinds[info.entry.nr].names)
			return resume(it, 0);
		kind = &kinds[info.entry.nr];
		it->number = info.entry.nr;
		for (int i = 0; i < 6; i++)
			it->arguments[i] = info.entry.args[i];
		if (kind->names == OPENED ? !may_create(it) : !changes(it, kind, 0, &path)) {
			it->number = NONE;
			return resume(it, 0);
		}
		// One at a time: what is stored between two calls is what the first has left.
		if (busy) {
			it->is_held = 1;
			return;
		}
		busy = it;
		return resume(it, 0);
	}
	if (info.op == PTRACE_SYSCALL_INFO_EXIT && it->number != NONE) {
		returned(it, info.exit.rval);
		it->number = NONE;
		resume(it, 0);
		if (busy == it)
			release_held();
		return;
	}
	resume(it, 0);
}

static void ended(struct tracee *it)
{
	it->pid = 0;
	it->is_held = 0;
	if (busy == it)
		release_held();
}

static int trace(int command)
{
	const word options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
			     PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC;

	for (;;) {
		int status = 0;
		long pid = SYSTEM(wait4, -1, &status, __WALL, 0);
		struct tracee *it;
		int signal;
		_Bool is_new;

		if (pid == -EINTR)
			continue;
		if (pid < 0)
			return 125;
		it = tracee_of((int)pid);
		if (!it)
			fail("too many processes");
		is_new = !it->pid;
		it->pid = (int)pid;
		if ((status & 0x7f) == 0 || (status & 0xff) != 0x7f) {
			ended(it);
			if (pid == command)
				return (status & 0x7f) ? 128 + (status & 0x7f) : (status >> 8) & 0xff;
			continue;
		}
		signal = (status >> 8) & 0xff;
		if (is_new) {
			it->number = NONE;
			if (pid == command)
				SYSTEM(ptrace, PTRACE_SETOPTIONS, pid, 0, options);
			// The stop with which a traced process begins.
			if (signal == SIGSTOP || signal == SIGTRAP)
				signal = 0;
			resume(it, signal);
		} else if (signal == (SIGTRAP | 0x80)) {
			at_system_call(it);
		} else {
			// Stops of the tracer are no signals.
			resume(it, signal == SIGTRAP ? 0 : signal);
		}
	}
}

static word decimal(const char *text)
{
	word value = 0;

	while (*text >= '0' && *text <= '9')
		value = value * 10 + (word)(*text++ - '0');
	return value;
}

static void note_device(const char *path, word *to)
{
	struct stat status;

	if (SYSTEM(stat, path, &status))
		fail(path);
	*to = status.st_dev;
}

static int run(int count, char **words)
{
	long file, mapped, command;

	if (count < 7)
		fail("usage: calls MEMORY MARKS MAX ROOT LIST COMMAND...");
	environment = words + count + 1;
	file = SYSTEM(open, words[1], O_RDWR | O_SYNC | O_CLOEXEC, 0);
	if (file < 0)
		fail(words[1]);
	mapped = SYSTEM(mmap, 0, MARKS_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, file, decimal(words[2]));
	if (mapped < 0 && mapped > -4096)
		fail("cannot map the marks");
	marks = (volatile word *)mapped;
	calls_max = decimal(words[3]);
	root = words[4];
	list = words[5];
	if (*root) {
		note_device(root, &devices[device_count++]);
	} else {
		note_device("/", &devices[device_count++]);
		note_device("/tmp", &devices[device_count++]);
		note_device("/dev", &devices[device_count++]);
		note_device("/proc", &processes_device);
	}
	command = SYSTEM(fork);
	if (command < 0)
		fail("cannot fork");
	if (!command) {
		SYSTEM(ptrace, PTRACE_TRACEME, 0, 0, 0);
		SYSTEM(execve, words[6], words + 6, environment);
		fail(words[6]);
	}
	return trace((int)command);
}

__attribute__((used)) static void begin(word *stack)
{
	SYSTEM(exit_group, run((int)stack[0], (char **)(stack + 1)));
}

__attribute__((naked, used)) void _start(void)
{
	asm("mov %rsp, %rdi\n"
	    "and $-16, %rsp\n"
	    "call begin");
}
