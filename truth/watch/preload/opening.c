/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Files that are opened: a look-up, and a change if they are made, emptied, or opened for writing.
 * From there on their bytes may change unseen (through mappings, by stdio), and the registrar keeps
 * nothing that they are part of until they are closed.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdlib.h>

#include "next.h"
#include "report.h"

struct opening {
	struct change change;
	int dirfd;
	const char *path;
	__u32 nr;
	int flags;
};

static bool may_change(int flags)
{
	return flags & (O_ACCMODE | O_TRUNC | O_CREAT);
}

static void begin(struct opening *opening)
{
	opening->change.count = 0;
	if (!may_change(opening->flags))
		return;
	if (opening->flags & O_CREAT) {
		struct stat stat;

		/* One that is there already leaves its directory as it is. */
		if (raw_fstatat(opening->dirfd, opening->path, &stat, 0) != 0)
			add_name(&opening->change, opening->dirfd, opening->path);
	}
	if (opening->flags & (O_ACCMODE | O_TRUNC))
		add_inode(&opening->change, opening->dirfd, opening->path,
			  opening->flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0);
	stamp(&opening->change);
}

static int end(struct opening *opening, int fd)
{
	struct lookup lookup = {
		.kind = EVENT_LOOKUP,
		.nr = opening->nr,
		.dirfd = opening->dirfd,
		.path = opening->path,
		.flags = opening->flags & O_NOFOLLOW ? FLAG_NOFOLLOW : 0,
		.open_flags = opening->flags,
		.opened = true,
	};

	if (fd >= 0 && may_change(opening->flags)) {
		if (opening->flags & (O_ACCMODE | O_TRUNC))
			add_descriptor(&opening->change, fd);
		stamp(&opening->change);
	}
	report_lookup(&lookup, fd);
	return fd;
}

#define MODE(flags)                                                        \
	({                                                                 \
		mode_t mode = 0;                                           \
		if ((flags)&O_CREAT || ((flags)&O_TMPFILE) == O_TMPFILE) { \
			va_list arguments;                                 \
			va_start(arguments, flags);                        \
			mode = va_arg(arguments, mode_t);                  \
			va_end(arguments);                                 \
		}                                                          \
		mode;                                                      \
	})

int open(const char *path, int flags, ...)
{
	struct opening opening = {.dirfd = AT_FDCWD, .path = path, .nr = SYS_open, .flags = flags};
	mode_t mode = MODE(flags);

	begin(&opening);
	return end(&opening, NEXT(open)(path, flags, mode));
}
ALSO(open, open64);
ALSO(open, __open);
ALSO(open, __open64);

int openat(int dirfd, const char *path, int flags, ...)
{
	struct opening opening = {.dirfd = dirfd, .path = path, .nr = SYS_openat, .flags = flags};
	mode_t mode = MODE(flags);

	begin(&opening);
	return end(&opening, NEXT(openat)(dirfd, path, flags, mode));
}
ALSO(openat, openat64);

int __open_2(const char *path, int flags);
int __open_2(const char *path, int flags)
{
	struct opening opening = {.dirfd = AT_FDCWD, .path = path, .nr = SYS_open, .flags = flags};

	begin(&opening);
	return end(&opening, NEXT(__open_2)(path, flags));
}
ALSO(__open_2, __open64_2);

int __openat_2(int dirfd, const char *path, int flags);
int __openat_2(int dirfd, const char *path, int flags)
{
	struct opening opening = {.dirfd = dirfd, .path = path, .nr = SYS_openat, .flags = flags};

	begin(&opening);
	return end(&opening, NEXT(__openat_2)(dirfd, path, flags));
}
ALSO(__openat_2, __openat64_2);

int creat(const char *path, mode_t mode)
{
	struct opening opening = {.dirfd = AT_FDCWD,
				  .path = path,
				  .nr = SYS_creat,
				  .flags = O_CREAT | O_TRUNC | O_WRONLY};

	begin(&opening);
	return end(&opening, NEXT(creat)(path, mode));
}
ALSO(creat, creat64);

/* Files with names of libc's choice. */
#define TEMPORARY(name, parameters, arguments, extra)                                    \
	int name parameters                                                              \
	{                                                                                \
		struct opening opening = {.dirfd = AT_FDCWD,                             \
					  .path = template,                              \
					  .nr = SYS_openat,                              \
					  .flags = O_CREAT | O_EXCL | O_RDWR | (extra)}; \
		int fd;                                                                  \
                                                                                         \
		opening.change.count = 0;                                                \
		add_name(&opening.change, AT_FDCWD, template);                           \
		stamp(&opening.change);                                                  \
		fd = NEXT(name) arguments;                                               \
		return end(&opening, fd);                                                \
	}

TEMPORARY(mkstemp, (char *template), (template), 0)
ALSO(mkstemp, mkstemp64);
TEMPORARY(mkostemp, (char *template, int flags), (template, flags), flags)
ALSO(mkostemp, mkostemp64);
TEMPORARY(mkstemps, (char *template, int suffix), (template, suffix), 0)
ALSO(mkstemps, mkstemps64);
TEMPORARY(mkostemps, (char *template, int suffix, int flags), (template, suffix, flags), flags)
ALSO(mkostemps, mkostemps64);

char *mkdtemp(char *template)
{
	struct change change = {.count = 0};
	char *made;

	add_name(&change, AT_FDCWD, template);
	stamp(&change);
	made = NEXT(mkdtemp)(template);
	if (made) {
		stamp(&change);
		report_descriptor(EVENT_WROTE, SYS_mkdir, 0, -1);
	}
	return made;
}

/* Past every path: nobody knows what it leads to. */
int open_by_handle_at(int mount_fd, struct file_handle *handle, int flags)
{
	int fd = NEXT(open_by_handle_at)(mount_fd, handle, flags);

	if (fd >= 0 && may_change(flags)) {
		struct change change = {.count = 0};

		add_descriptor(&change, fd);
		stamp(&change);
	}
	report_hidden(SYS_open_by_handle_at);
	return fd;
}
