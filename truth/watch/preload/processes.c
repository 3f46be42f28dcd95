/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Processes that begin and end. Each beginning and each end in the server's group voids everything,
 * as with the kernel's witness. A program that this library cannot follow is told at its start; as
 * long as it runs, the watcher finds it in /proc.
 */
#define _GNU_SOURCE
#include "programs.h"

#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mapping.h"
#include "next.h"
#include "report.h"

static void change_group(void)
{
	if (role == ROLE_SERVER)
		change_slot(SLOT_EVERYTHING);
}

/* ---- beginning ---- */

static void begin_process(void)
{
	forget_process_number();
	change_group();
	report_descriptor(EVENT_STARTED, SYS_fork, 0, -1);
}

void start_process(void)
{
	if (role != ROLE_NONE)
		begin_process();
}

#define FORK(name)                                   \
	pid_t name(void)                             \
	{                                            \
		pid_t child = NEXT(name)();          \
                                                     \
		if (child == 0 && role != ROLE_NONE) \
			begin_process();             \
		else if (child > 0)                  \
			change_group();              \
		return child;                        \
	}
FORK(fork)
FORK(_Fork)
ALSO(fork, __fork);

int daemon(int stay, int keep)
{
	int result;

	change_group();
	result = NEXT(daemon)(stay, keep);
	if (result == 0 && role != ROLE_NONE)
		begin_process();
	return result;
}

/* vfork returns twice, to a frame that must be its caller's: so it is jumped to. The child has its
 * parent's memory, but its own number (report.c asks for it each time).
 */
__attribute__((visibility("hidden"), used)) void *nicache_before_vfork(void);
void *nicache_before_vfork(void)
{
	change_group();
	return (void *)NEXT(vfork);
}

__asm__(".text\n"
	".globl vfork\n"
	".type vfork, @function\n"
	"vfork:\n"
	"	subq $8, %rsp\n"
	"	call nicache_before_vfork\n"
	"	addq $8, %rsp\n"
	"	jmp *%rax\n"
	".size vfork, .-vfork\n"
	".globl __vfork\n"
	".set __vfork, vfork\n");

int clone(int (*body)(void *), void *stack, int flags, void *argument, ...)
{
	va_list arguments;
	void *parent, *tls, *child;
	int result;

	va_start(arguments, argument);
	parent = va_arg(arguments, void *);
	tls = va_arg(arguments, void *);
	child = va_arg(arguments, void *);
	va_end(arguments);
	if (!(flags & CLONE_THREAD))
		change_group();
	result = NEXT(clone)(body, stack, flags, argument, parent, tls, child);
	if (result > 0 && !(flags & CLONE_THREAD))
		change_group();
	return result;
}

/* ---- ending ---- */

void end_process(void)
{
	int fd;

	if (role == ROLE_NONE)
		return;
	/* What streams still hold is written now, and not behind our back. */
	NEXT(fflush)(0);
	for (fd = 0; fd < 256; fd++)
		if ((raw_flags(fd) & O_ACCMODE) != O_RDONLY) {
			struct change change = {.count = 0};

			add_descriptor(&change, fd);
			stamp(&change);
		}
	stamp_mappings();
	change_group();
	report_descriptor(EVENT_ENDED, SYS_exit_group, 0, -1);
}

void _exit(int status)
{
	stamp_mappings();
	change_group();
	report_descriptor(EVENT_ENDED, SYS_exit_group, 0, -1);
	NEXT(_exit)(status);
	__builtin_unreachable();
}
ALSO(_exit, _Exit);

void quick_exit(int status)
{
	stamp_mappings();
	change_group();
	NEXT(quick_exit)(status);
	__builtin_unreachable();
}

/* ---- other programs ---- */

int execve(const char *path, char *const arguments[], char *const environment[])
{
	WITH_VARIABLES(environment);
	check_program(AT_FDCWD, path, environment_now);
	change_group();
	stamp_mappings();
	return NEXT(execve)(path, arguments, environment_now);
}

int execveat(int dirfd, const char *path, char *const arguments[], char *const environment[],
	     int flags)
{
	WITH_VARIABLES(environment);
	check_program(dirfd, path, environment_now);
	change_group();
	stamp_mappings();
	return NEXT(execveat)(dirfd, path, arguments, environment_now, flags);
}

int fexecve(int fd, char *const arguments[], char *const environment[])
{
	WITH_VARIABLES(environment);
	check_program(fd, "", environment_now);
	change_group();
	stamp_mappings();
	return NEXT(fexecve)(fd, arguments, environment_now);
}

int execvpe(const char *file, char *const arguments[], char *const environment[])
{
	WITH_VARIABLES(environment);
	check_file(file, environment_now);
	change_group();
	stamp_mappings();
	return NEXT(execvpe)(file, arguments, environment_now);
}

int execv(const char *path, char *const arguments[])
{
	return execve(path, arguments, environ);
}

int execvp(const char *file, char *const arguments[])
{
	return execvpe(file, arguments, environ);
}

/* Counts the arguments of a call, and takes them. */
#define LIST_ARGUMENTS(first)                                                \
	va_list list;                                                        \
	int count = 0, at;                                                   \
                                                                             \
	va_start(list, first);                                               \
	for (const char *one = first; one; one = va_arg(list, const char *)) \
		count++;                                                     \
	va_end(list);                                                        \
	char *arguments[count + 1];                                          \
	arguments[0] = (char *)first;                                        \
	va_start(list, first);                                               \
	for (at = 1; at <= count; at++)                                      \
	arguments[at] = va_arg(list, char *)

int execl(const char *path, const char *first, ...)
{
	LIST_ARGUMENTS(first);
	va_end(list);
	return execve(path, arguments, environ);
}

int execlp(const char *file, const char *first, ...)
{
	LIST_ARGUMENTS(first);
	va_end(list);
	return execvpe(file, arguments, environ);
}

int execle(const char *path, const char *first, ...)
{
	char *const *environment;

	LIST_ARGUMENTS(first);
	environment = va_arg(list, char *const *);
	va_end(list);
	return execve(path, arguments, environment);
}

#define SPAWN(name, check)                                                              \
	int name(pid_t *child, const char *path, const posix_spawn_file_actions_t *actions,\
		 const posix_spawnattr_t *attributes, char *const arguments[],          \
		 char *const environment[])                                             \
	{                                                                               \
		int result;                                                             \
                                                                                        \
		WITH_VARIABLES(environment);                                            \
		check;                                                                  \
		/* Files that it opens for the child are not seen. */                   \
		change_slot(SLOT_EVERYTHING);                                           \
		result = NEXT(name)(child, path, actions, attributes, arguments, environment_now);\
		change_slot(SLOT_EVERYTHING);                                           \
		return result;                                                          \
	}
SPAWN(posix_spawn, check_program(AT_FDCWD, path, environment_now))
SPAWN(posix_spawnp, check_file(path, environment_now))

/* These start a shell with the environment as it is. */
FILE *popen(const char *command, const char *mode)
{
	FILE *stream;

	check_program(AT_FDCWD, "/bin/sh", environ);
	change_group();
	stream = NEXT(popen)(command, mode);
	change_group();
	return stream;
}

int system(const char *command)
{
	int result;

	check_program(AT_FDCWD, "/bin/sh", environ);
	change_group();
	result = NEXT(system)(command);
	change_group();
	return result;
}

int clearenv(void)
{
	int result = NEXT(clearenv)();

	keep_variables();
	return result;
}
