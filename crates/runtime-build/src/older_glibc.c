/*
 * Lets what is linked with a newer glibc run with an older one, from 2.31 on.
 *
 * The linker binds a name to its newest version. glibc 2.34 gave new versions to what it moved from libpthread and libdl into
 * libc, though most of it does the same as before, and 2.33 made functions of what had been macros. These names are defined
 * here again, hidden: only the file that this is linked into uses them. They jump to the old versions, which newer
 * versions of glibc have as well.
 *
 * EXECUTABLE: for programs. RUNTIME: for the library that is loaded into targets, which has functions of some of these names
 * itself. Neither: for another library.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

#define OLD(name, version)                                                                                             \
	__asm__(".symver powerfail_old_" #name ", " #name "@" version "\n"                                             \
		".pushsection .text." #name ", \"ax\", @progbits\n"                                                    \
		".globl " #name "\n"                                                                                   \
		".hidden " #name "\n"                                                                                  \
		".type " #name ", @function\n" #name ":\n"                                                             \
		"endbr64\n"                                                                                            \
		"jmp *powerfail_old_" #name "@GOTPCREL(%rip)\n"                                                        \
		".size " #name ", . - " #name "\n"                                                                     \
		".popsection\n")

OLD(dlsym, "GLIBC_2.2.5");
OLD(dlvsym, "GLIBC_2.2.5");
OLD(pthread_key_create, "GLIBC_2.2.5");
OLD(pthread_key_delete, "GLIBC_2.2.5");
OLD(pthread_setspecific, "GLIBC_2.2.5");

#ifndef RUNTIME

HIDDEN int fstatat64(int fd, const char *restrict path, struct stat64 *restrict out, int flags)
{
	return (int)syscall(SYS_newfstatat, fd, path, out, flags);
}

HIDDEN int fstat64(int fd, struct stat64 *out)
{
	return (int)syscall(SYS_fstat, fd, out);
}

HIDDEN int stat64(const char *restrict path, struct stat64 *restrict out)
{
	return fstatat64(AT_FDCWD, path, out, 0);
}

HIDDEN int lstat64(const char *restrict path, struct stat64 *restrict out)
{
	return fstatat64(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}

HIDDEN int fstatat(int fd, const char *restrict path, struct stat *restrict out, int flags)
{
	return (int)syscall(SYS_newfstatat, fd, path, out, flags);
}

HIDDEN int fstat(int fd, struct stat *out)
{
	return (int)syscall(SYS_fstat, fd, out);
}

HIDDEN int stat(const char *restrict path, struct stat *restrict out)
{
	return (int)syscall(SYS_newfstatat, AT_FDCWD, path, out, 0);
}

#endif

#ifdef EXECUTABLE

OLD(pthread_attr_getguardsize, "GLIBC_2.2.5");
OLD(pthread_attr_getstack, "GLIBC_2.2.5");
OLD(pthread_attr_setstacksize, "GLIBC_2.2.5");
OLD(pthread_create, "GLIBC_2.2.5");
OLD(pthread_detach, "GLIBC_2.2.5");
OLD(pthread_getattr_np, "GLIBC_2.2.5");
OLD(pthread_join, "GLIBC_2.2.5");
OLD(pthread_setname_np, "GLIBC_2.12");

typedef void constructor(int, char **, char **);
typedef int main_function(int, char **, char **);

/* The linker defines them. */
HIDDEN extern constructor *__init_array_start[];
HIDDEN extern constructor *__init_array_end[];

static void construct(int argc, char **argv, char **envp)
{
	for (constructor **it = __init_array_start; it != __init_array_end; it++)
		(*it)(argc, argv, envp);
}

int powerfail_old_start(main_function *, int, char **, constructor *, void (*)(void), void (*)(void), void *);
__asm__(".symver powerfail_old_start, __libc_start_main@GLIBC_2.2.5");

/*
 * The start code of glibc 2.34 and later leaves it to libc to call the constructors of a program; libc before 2.34
 * calls the function that it is given.
 */
HIDDEN int __libc_start_main(main_function *main, int argc, char **argv, constructor *init, void (*fini)(void),
			     void (*rtld_fini)(void), void *stack_end)
{
	return powerfail_old_start(main, argc, argv, init ? init : construct, fini, rtld_fini, stack_end);
}

#endif
