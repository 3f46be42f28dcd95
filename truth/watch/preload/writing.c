/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Bytes that are written to descriptors, to files and to peers.
 */
#define _GNU_SOURCE
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "next.h"
#include "report.h"

/* The source is stamped twice: a fill whose request is forwarded in between has read one state or
 * the other.
 */
#define WRITE(name, parameters, arguments, nr)              \
	ssize_t name parameters                             \
	{                                                   \
		struct change change = {.count = 0};        \
		bool to_file = add_descriptor(&change, fd); \
		ssize_t result;                             \
                                                            \
		stamp(&change);                             \
		result = NEXT(name) arguments;              \
		if (to_file)                                \
			stamp(&change);                     \
		if (result > 0)                             \
			report_written(fd, nr, result);     \
		return result;                              \
	}

WRITE(write, (int fd, const void *bytes, size_t count), (fd, bytes, count), SYS_write)
ALSO(write, __write);
WRITE(pwrite, (int fd, const void *bytes, size_t count, off_t offset), (fd, bytes, count, offset),
      SYS_pwrite64)
ALSO(pwrite, pwrite64);
ALSO(pwrite, __pwrite64);
WRITE(writev, (int fd, const struct iovec *parts, int count), (fd, parts, count), SYS_writev)
WRITE(pwritev, (int fd, const struct iovec *parts, int count, off_t offset),
      (fd, parts, count, offset), SYS_pwritev)
ALSO(pwritev, pwritev64);
WRITE(pwritev2, (int fd, const struct iovec *parts, int count, off_t offset, int flags),
      (fd, parts, count, offset, flags), SYS_pwritev2)
ALSO(pwritev2, pwritev64v2);
WRITE(copy_file_range,
      (int from, off_t *from_at, int fd, off_t *at, size_t count, unsigned int flags),
      (from, from_at, fd, at, count, flags), SYS_copy_file_range)
WRITE(splice, (int from, off_t *from_at, int fd, off_t *at, size_t count, unsigned int flags),
      (from, from_at, fd, at, count, flags), SYS_splice)

ssize_t sendfile(int fd, int from, off_t *offset, size_t count)
{
	struct change change = {.count = 0};
	bool to_file = add_descriptor(&change, fd);
	ssize_t result;

	stamp(&change);
	result = NEXT(sendfile)(fd, from, offset, count);
	if (to_file)
		stamp(&change);
	if (result > 0) {
		report_descriptor(EVENT_SENDFILE, SYS_sendfile, result, from);
		report_written(fd, SYS_sendfile, result);
	}
	return result;
}
ALSO(sendfile, sendfile64);

/* ---- to peers ---- */

#define SEND(type, name, parameters, arguments, nr)  \
	type name parameters                         \
	{                                            \
		type result = NEXT(name) arguments;  \
                                                     \
		if (result > 0)                      \
			report_peer(fd, nr, result); \
		return result;                       \
	}
SEND(ssize_t, send, (int fd, const void *bytes, size_t count, int flags), (fd, bytes, count, flags),
     SYS_sendto)
ALSO(send, __send);
SEND(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags),
     SYS_sendmsg)
SEND(int, sendmmsg, (int fd, struct mmsghdr *messages, unsigned int count, int flags),
     (fd, messages, count, flags), SYS_sendmmsg)

ssize_t sendto(int fd, const void *bytes, size_t count, int flags, __CONST_SOCKADDR_ARG address,
	       socklen_t address_bytes)
{
	ssize_t result = NEXT(sendto)(fd, bytes, count, flags, address, address_bytes);

	if (result > 0)
		report_peer(fd, SYS_sendto, result);
	return result;
}

/* A peer may speak first. */
int connect(int fd, __CONST_SOCKADDR_ARG address, socklen_t address_bytes)
{
	int result = NEXT(connect)(fd, address, address_bytes);

	if (result == 0)
		report_peer(fd, SYS_connect, result);
	return result;
}
ALSO(connect, __connect);
