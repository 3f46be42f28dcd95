/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Files that are opened as streams: libc opens, writes and closes them by functions of its own. The
 * opening is a look-up, and a change if it is for writing; as long as the stream is open for
 * writing, the registrar keeps nothing that the file is part of; its end is a change, too.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "next.h"
#include "report.h"

static int flags_of(const char *mode)
{
	int flags = mode[0] == 'r' ? 0 : mode[0] == 'w' ? O_CREAT | O_TRUNC : O_CREAT | O_APPEND;

	if (mode[0] && strchr(mode, '+'))
		flags |= O_RDWR;
	else if (mode[0] != 'r')
		flags |= O_WRONLY;
	return mode[0] && strchr(mode, 'x') ? flags | O_EXCL : flags;
}

static void begin(struct change *change, const char *path, int flags)
{
	struct stat stat;

	if (!(flags & (O_ACCMODE | O_CREAT)))
		return;
	if (raw_fstatat(AT_FDCWD, path, &stat, 0) == 0)
		add_inode(change, AT_FDCWD, path, 0);
	else
		add_name(change, AT_FDCWD, path);
	stamp(change);
}

static void end(struct change *change, const char *path, int flags, FILE *stream)
{
	struct lookup lookup = {.kind = EVENT_LOOKUP,
				.nr = SYS_openat,
				.dirfd = AT_FDCWD,
				.path = path,
				.open_flags = flags,
				.opened = true};

	if (stream && flags & (O_ACCMODE | O_CREAT)) {
		add_descriptor(change, fileno(stream));
		stamp(change);
	}
	report_lookup(&lookup, stream ? fileno(stream) : -1);
}

FILE *fopen(const char *path, const char *mode)
{
	struct change change = {.count = 0};
	int flags = flags_of(mode);
	FILE *stream;

	begin(&change, path, flags);
	stream = NEXT(fopen)(path, mode);
	end(&change, path, flags, stream);
	return stream;
}
ALSO(fopen, fopen64);

/* Streams over nothing but memory have no descriptor. */
static bool is_writable(FILE *stream)
{
	int before = errno, fd = stream ? fileno(stream) : -1;

	errno = before;
	return role != ROLE_NONE && fd >= 0 && (raw_flags(fd) & O_ACCMODE) != O_RDONLY;
}

/* A file behind a stream is being written, or may be. */
static void begin_flush(struct change *change, FILE *stream)
{
	if (is_writable(stream))
		add_descriptor(change, fileno(stream));
	stamp(change);
}

FILE *freopen(const char *path, const char *mode, FILE *stream)
{
	struct change change = {.count = 0};
	int flags = flags_of(mode);
	FILE *opened;

	begin_flush(&change, stream);
	if (path)
		begin(&change, path, flags);
	opened = NEXT(freopen)(path, mode, stream);
	if (path)
		end(&change, path, flags, opened);
	else
		stamp(&change);
	return opened;
}
ALSO(freopen, freopen64);

int fclose(FILE *stream)
{
	struct change change = {.count = 0};
	int result;

	begin_flush(&change, stream);
	if (change.count)
		report_written(fileno(stream), SYS_write, 1);
	result = NEXT(fclose)(stream);
	stamp(&change);
	return result;
}

/* All streams: which files are behind them is known to libc alone. */
static void flush_all(void)
{
	struct change change = {.count = 0};
	int fd;

	for (fd = 0; fd < 256; fd++)
		if ((raw_flags(fd) & O_ACCMODE) != O_RDONLY)
			add_descriptor(&change, fd);
	stamp(&change);
}

int fflush(FILE *stream)
{
	struct change change = {.count = 0};
	int result;

	begin_flush(&change, stream);
	result = NEXT(fflush)(stream);
	if (!stream && role != ROLE_NONE)
		flush_all();
	stamp(&change);
	if (change.count)
		report_written(fileno(stream), SYS_write, 1);
	return result;
}

int fcloseall(void)
{
	int result;

	NEXT(fflush)(0);
	if (role != ROLE_NONE)
		flush_all();
	result = NEXT(fcloseall)();
	return result;
}

/* What is written is told at once, as the request that writes is one that may not be kept. Single
 * characters are not looked at: they are told when the stream is flushed or closed.
 */
static void wrote(FILE *stream)
{
	int before = errno;

	if (role == ROLE_SERVER && is_writable(stream)) {
		struct change change = {.count = 0};

		if (add_descriptor(&change, fileno(stream))) {
			stamp(&change);
			report_written(fileno(stream), SYS_write, 1);
		}
	}
	errno = before;
}

#define PUT(type, name, parameters, arguments)      \
	type name parameters                        \
	{                                           \
		type result = NEXT(name) arguments; \
                                                    \
		wrote(stream);                      \
		return result;                      \
	}
/* Macros in some headers. */
#undef fwrite_unlocked
#undef fputs_unlocked
PUT(size_t, fwrite, (const void *bytes, size_t size, size_t count, FILE *stream),
    (bytes, size, count, stream))
PUT(size_t, fwrite_unlocked, (const void *bytes, size_t size, size_t count, FILE *stream),
    (bytes, size, count, stream))
PUT(int, fputs, (const char *text, FILE *stream), (text, stream))
PUT(int, fputs_unlocked, (const char *text, FILE *stream), (text, stream))
PUT(int, vfprintf, (FILE * stream, const char *format, va_list arguments),
    (stream, format, arguments))
int __vfprintf_chk(FILE *stream, int flag, const char *format, va_list arguments);
PUT(int, __vfprintf_chk, (FILE * stream, int flag, const char *format, va_list arguments),
    (stream, flag, format, arguments))

int fprintf(FILE *stream, const char *format, ...)
{
	va_list arguments;
	int result;

	va_start(arguments, format);
	result = vfprintf(stream, format, arguments);
	va_end(arguments);
	return result;
}

int __fprintf_chk(FILE *stream, int flag, const char *format, ...);
int __fprintf_chk(FILE *stream, int flag, const char *format, ...)
{
	va_list arguments;
	int result;

	va_start(arguments, format);
	result = __vfprintf_chk(stream, flag, format, arguments);
	va_end(arguments);
	return result;
}
