/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A program does not load this library if it is statically linked, of another word size, runs with
 * rights of its own (set-user-ID, file capabilities), or is not told to. What libc does not run at
 * all (a script without `#!`) is taken for a shell's.
 */
#define _GNU_SOURCE
#include "programs.h"

#include <elf.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report.h"

#define INTERPRETERS_MAX 5
#define PROGRAM_HEADERS_MAX 64

static char loader_variable[2 * PATH_MAX];
static char memory_variable[FOLDER_BYTES + 64];

void remember_variables(void)
{
	const char *library = getenv("LD_PRELOAD"), *memory = getenv(PRELOAD_VARIABLE);

	if (!library || !memory || strlen(library) >= sizeof(loader_variable) - 12 ||
	    strlen(memory) >= sizeof(memory_variable) - 18)
		return;
	strcpy(loader_variable, "LD_PRELOAD=");
	strcat(loader_variable, library);
	strcpy(memory_variable, PRELOAD_VARIABLE "=");
	strcat(memory_variable, memory);
}

void keep_variables(void)
{
	int before = errno;

	if (role != ROLE_NONE && loader_variable[0]) {
		putenv(loader_variable);
		putenv(memory_variable);
	}
	errno = before;
}

static bool has(char *const environment[], const char *variable)
{
	int at;

	for (at = 0; environment && environment[at]; at++)
		if (!strcmp(environment[at], variable))
			return true;
	return false;
}

static bool names(char *const environment[], const char *variable)
{
	size_t len = strchr(variable, '=') - variable + 1;
	int at;

	for (at = 0; environment && environment[at]; at++)
		if (!strncmp(environment[at], variable, len))
			return true;
	return false;
}

int count_incomplete(char *const environment[])
{
	int count = 0;

	if (role == ROLE_NONE || !loader_variable[0] || !environment)
		return 0;
	/* Where the program is to have another library, it is its caller's choice. */
	if (names(environment, loader_variable) && names(environment, memory_variable))
		return 0;
	while (environment[count])
		if (++count > VARIABLES_MAX)
			return 0;
	/* Not 0 for an empty one: its end counts. */
	return count + 1;
}

void complete(char *const environment[], int count, char *into[])
{
	int at, to = 0;

	for (at = 0; at < count - 1; at++)
		into[to++] = environment[at];
	if (!names(environment, loader_variable))
		into[to++] = loader_variable;
	if (!names(environment, memory_variable))
		into[to++] = memory_variable;
	into[to] = 0;
}

/* Can the file behind the descriptor be followed? For a script, `interpreter` is what runs it, else
 * empty.
 */
static bool is_followed(long fd, char *interpreter)
{
	union {
		Elf64_Ehdr elf;
		char bytes[PATH_MAX];
	} head;
	Elf64_Phdr part;
	struct stat stat;
	long len, at;
	int from, to = 0;

	interpreter[0] = 0;
	if (!raw_fstat(fd, &stat) || stat.st_mode & S_ISUID ||
	    (stat.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP))
		return false;
	if (raw6(SYS_fgetxattr, fd, (long)"security.capability", 0, 0, 0, 0) > 0)
		return false;
	len = raw(SYS_pread64, fd, head.bytes, sizeof(head.bytes) - 1, 0);
	if (len < 2)
		return len >= 0;
	head.bytes[len] = 0;
	if (head.bytes[0] == '#' && head.bytes[1] == '!') {
		from = 2 + strspn(head.bytes + 2, " \t");
		while (head.bytes[from] && !strchr(" \t\n", head.bytes[from]))
			interpreter[to++] = head.bytes[from++];
		interpreter[to] = 0;
		return true;
	}
	if (len < (long)sizeof(head.elf) || memcmp(head.elf.e_ident, ELFMAG, SELFMAG))
		return true; /* the kernel does not run it */
	if (head.elf.e_ident[EI_CLASS] != ELFCLASS64 || head.elf.e_machine != EM_X86_64 ||
	    head.elf.e_phentsize != sizeof(part))
		return false;
	for (at = 0; at < head.elf.e_phnum && at < PROGRAM_HEADERS_MAX; at++) {
		if (raw(SYS_pread64, fd, &part, sizeof(part),
			head.elf.e_phoff + at * sizeof(part)) != sizeof(part))
			return false;
		if (part.p_type == PT_INTERP)
			return true;
	}
	return false;
}

void check_program(int dirfd, const char *path, char *const environment[])
{
	char interpreter[PATH_MAX];
	bool followed = has(environment, loader_variable) && has(environment, memory_variable);
	int before = errno, tries;
	long fd;

	/* What is not to be read is not run. */
	if (role != ROLE_SERVER || raw(SYS_faccessat, AT_FDCWD, path, F_OK, 0) == -EFAULT)
		return;
	/* fexecve */
	if (!*path && dirfd >= 0) {
		followed = followed && is_followed(dirfd, interpreter) && !interpreter[0];
		goto told;
	}
	for (tries = 0; followed && tries < INTERPRETERS_MAX; tries++) {
		fd = raw(SYS_openat, dirfd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
		if (fd == -ENOENT || fd == -ENOTDIR)
			break; /* there is nothing to run */
		if (fd < 0) {
			followed = false;
			break;
		}
		followed = is_followed(fd, interpreter);
		raw(SYS_close, fd, 0, 0, 0);
		if (!interpreter[0])
			break;
		path = interpreter;
		dirfd = AT_FDCWD;
	}
	if (tries == INTERPRETERS_MAX)
		followed = false;
told:
	if (!followed)
		report_unseen(SYS_execve);
	errno = before;
}

void check_file(const char *file, char *const environment[])
{
	const char *path = getenv("PATH"), *end;
	char full[PATH_MAX];

	if (role != ROLE_SERVER)
		return;
	if (strchr(file, '/')) {
		check_program(AT_FDCWD, file, environment);
		return;
	}
	for (path = path ? path : "/bin:/usr/bin"; *path; path = *end ? end + 1 : end) {
		end = strchrnul(path, ':');
		if ((size_t)(end - path) + strlen(file) + 2 > sizeof(full))
			continue;
		memcpy(full, path, end - path);
		full[end - path] = '/';
		strcpy(full + (end - path) + 1, file);
		if (raw(SYS_faccessat, AT_FDCWD, full, X_OK, 0) == 0) {
			check_program(AT_FDCWD, full, environment);
			return;
		}
	}
}
