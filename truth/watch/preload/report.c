/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#define _GNU_SOURCE
#include "report.h"

#include <limits.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

/* ---- who this is ---- */

/* The process's number as it sees itself, and as the watcher does, who lives in the PID namespace
 * of /proc. One word, as threads read it while another changes it.
 */
static __u64 process_numbers;

void forget_process_number(void)
{
	__atomic_store_n(&process_numbers, 0, __ATOMIC_RELAXED);
}

/* Inner number << 32 | outer number, 0 if /proc does not tell. Asked for each event, as a child
 * that shares its parent's memory, or was made by a system call, is another process.
 */
static __u64 numbers(void)
{
	__u64 known = __atomic_load_n(&process_numbers, __ATOMIC_RELAXED),
	      inner = raw(SYS_getpid, 0, 0, 0, 0), outer = 0;
	char text[16];
	long len, at;

	if (known >> 32 == inner)
		return known;
	len = raw(SYS_readlink, "/proc/self", text, sizeof(text), 0);
	if (len <= 0 || len >= (long)sizeof(text))
		return 0;
	for (at = 0; at < len; at++) {
		if (text[at] < '0' || text[at] > '9')
			return 0;
		outer = outer * 10 + (text[at] - '0');
	}
	known = inner << 32 | (outer & 0xffffffff);
	__atomic_store_n(&process_numbers, known, __ATOMIC_RELAXED);
	return known;
}

/* ---- events ---- */

static void fill_head(struct event_head *head, __u16 kind, __u32 nr, long result, int dirfd)
{
	struct timespec now;
	__u64 known = numbers();

	memset(head, 0, sizeof(*head));
	clock_gettime(CLOCK_MONOTONIC, &now);
	head->time_ns = (__u64)now.tv_sec * 1000000000ULL + now.tv_nsec;
	head->clock = clock_of_table();
	head->ret = result;
	/* Nobody can resolve the paths of a process without a number in /proc: after that nothing
	 * is kept any longer.
	 */
	head->kind = known ? kind : EVENT_HIDDEN;
	head->tgid = (__u32)known;
	head->tid = (__u32)known;
	head->reserved = known >> 32;
	head->dirfd = dirfd;
	head->nr = nr;
}

static void set_inode(struct event_head *head, const struct stat *stat)
{
	head->dev = major(stat->st_dev) << 20 | minor(stat->st_dev);
	head->ino = stat->st_ino;
	head->mode = stat->st_mode;
	head->uid = stat->st_uid;
	head->gid = stat->st_gid;
	head->size = stat->st_size;
	head->changed_ns = (__u64)stat->st_ctim.tv_sec * 1000000000ULL + stat->st_ctim.tv_nsec;
	head->flags |= FLAG_INODE;
}

void report_lookup(const struct lookup *lookup, long result)
{
	int before = errno;
	struct lookup_event event;
	struct stat stat;
	size_t len;

	if (role != ROLE_SERVER)
		return;
	/* A path that is not to be read. Some calls say what else is wrong before they look at it.
	 */
	if (result == -1 && before != ENOENT &&
	    raw(SYS_faccessat, AT_FDCWD, lookup->path, F_OK, 0) == -EFAULT)
		return;
	len = strnlen(lookup->path, PATH_BYTES);
	/* fstat by another name: no path was looked up. */
	if (!len && lookup->kind == EVENT_LOOKUP)
		return;
	fill_head(&event.head, lookup->kind, lookup->nr, result == -1 ? -before : result,
		  lookup->dirfd);
	event.head.flags = lookup->flags;
	event.head.open_flags = lookup->open_flags;
	/* As in the kernel's witness a path that just fits is taken for a cut one. */
	if (len >= PATH_BYTES - 1) {
		len = PATH_BYTES - 1;
		event.head.flags |= FLAG_INCOMPLETE;
	}
	memcpy(event.path, lookup->path, len);
	event.head.path_len = len;
	if (lookup->dirfd >= 0 && lookup->path[0] != '/' && raw_fstat(lookup->dirfd, &stat)) {
		event.head.dir_dev = major(stat.st_dev) << 20 | minor(stat.st_dev);
		event.head.dir_ino = stat.st_ino;
		event.head.flags |= FLAG_DIRECTORY;
	}
	if (lookup->opened && result >= 0 && raw_fstat(result, &stat)) {
		set_inode(&event.head, &stat);
		if (S_ISREG(stat.st_mode) && (lookup->open_flags & O_ACCMODE) != O_WRONLY)
			event.head.clock =
				clock_after_changes_of(slot_of(stat.st_dev, stat.st_ino));
	}
	push_event(&event);
	errno = before;
}

void report_path(__u32 nr, int dirfd, const char *path, __u16 flags, long result)
{
	struct lookup lookup = {
		.kind = EVENT_LOOKUP, .nr = nr, .dirfd = dirfd, .path = path, .flags = flags};

	report_lookup(&lookup, result);
}

void report_descriptor(__u16 kind, __u32 nr, long result, int fd)
{
	struct lookup_event event;
	struct stat stat;
	int before = errno;

	if (role != ROLE_SERVER)
		return;
	fill_head(&event.head, kind, nr, result == -1 ? -before : result, fd);
	if (fd >= 0 && raw_fstat(fd, &stat))
		set_inode(&event.head, &stat);
	push_event(&event);
	errno = before;
}

void report_unseen(__u32 nr)
{
	report_descriptor(EVENT_UNSEEN, nr, 0, -1);
}

void report_hidden(__u32 nr)
{
	report_descriptor(EVENT_HIDDEN, nr, 0, -1);
}

void report_written(int fd, __u32 nr, long result)
{
	struct stat stat;

	if (role != ROLE_SERVER || !raw_fstat(fd, &stat))
		return;
	if (S_ISSOCK(stat.st_mode))
		report_peer(fd, nr, result);
	/* A file without a name is nobody else's, and one that is opened for appending is a log. */
	else if (S_ISREG(stat.st_mode) && stat.st_nlink && !(raw_flags(fd) & O_APPEND))
		report_descriptor(EVENT_WROTE, nr, result, fd);
}

/* Whom the other end belongs to. To a client of the web server: that is not a question. */
void report_peer(int fd, __u32 nr, long result)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} here, there;
	unsigned int here_bytes = sizeof(here), there_bytes = sizeof(there),
		     credentials_bytes = sizeof(struct ucred);
	struct ucred credentials;
	struct lookup_event event;
	__u32 family, address, words[4];
	__u16 local = 0;
	int before = errno;

	if (role != ROLE_SERVER)
		return;
	memset(&here, 0, sizeof(here));
	memset(&there, 0, sizeof(there));
	if (raw(SYS_getsockname, fd, &here, &here_bytes, 0) < 0)
		return;
	family = here.any.sa_family;
	if (family == AF_INET || family == AF_INET6) {
		local = ntohs(family == AF_INET ? here.v4.sin_port : here.v6.sin6_port);
		if (is_service_port(local))
			return;
	}
	fill_head(&event.head, EVENT_SENT, nr, result, fd);
	if (family == AF_UNIX) {
		/* The number is one of this process's PID namespace; 0: outside. The watcher
		 * translates it.
		 */
		if (raw6(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, (long)&credentials,
			 (long)&credentials_bytes, 0) == 0)
			event.head.ino = credentials.pid;
	} else if (family == AF_INET || family == AF_INET6) {
		raw(SYS_getpeername, fd, &there, &there_bytes, 0);
		address = there.v4.sin_addr.s_addr;
		if (family == AF_INET6) {
			memcpy(words, &there.v6.sin6_addr, sizeof(words));
			if (!words[0] && !words[1] && words[2] == htonl(0xffff)) {
				family = AF_INET;
				address = words[3];
			} else if (!words[0] && !words[1] && !words[2] && words[3] == htonl(1)) {
				family = AF_INET;
				address = htonl(INADDR_LOOPBACK);
			}
		}
		/* The port is at the same place in both. */
		if (family == AF_INET)
			event.head.ino = (__u64)ntohl(address) << 16 | ntohs(there.v4.sin_port);
	}
	event.head.dev = family;
	event.head.dir_dev = local;
	push_event(&event);
	errno = before;
}

/* ---- changes ---- */

void add_slot(struct change *change, __u32 slot)
{
	int at;

	for (at = 0; at < change->count; at++)
		if (change->slots[at] == slot)
			return;
	if (change->count == CHANGE_SLOTS_MAX)
		change->slots[--change->count] = SLOT_EVERYTHING;
	else
		change->slots[change->count] = slot;
	change->count++;
}

void add_everything(struct change *change)
{
	add_slot(change, SLOT_EVERYTHING);
}

bool add_descriptor(struct change *change, int fd)
{
	struct stat stat;

	if (role == ROLE_NONE || !raw_fstat(fd, &stat) ||
	    !(S_ISREG(stat.st_mode) || S_ISDIR(stat.st_mode)))
		return false;
	add_slot(change, slot_of(stat.st_dev, stat.st_ino));
	return true;
}

void add_inode(struct change *change, int dirfd, const char *path, int flags)
{
	struct stat stat;

	if (role != ROLE_NONE && raw_fstatat(dirfd, path, &stat, flags) == 0)
		add_slot(change, slot_of(stat.st_dev, stat.st_ino));
}

void add_name(struct change *change, int dirfd, const char *path)
{
	struct stat stat;
	char parent[PATH_MAX];
	size_t len;
	long found;

	if (role == ROLE_NONE)
		return;
	found = raw_fstatat(dirfd, path, &stat, AT_SYMLINK_NOFOLLOW);
	/* The path is not to be read. */
	if (found == -EFAULT)
		return;
	if (found == 0)
		add_slot(change, slot_of(stat.st_dev, stat.st_ino));
	len = strnlen(path, PATH_MAX);
	if (len == PATH_MAX)
		return; /* the call itself will fail */
	while (len > 1 && path[len - 1] == '/')
		len--;
	while (len > 0 && path[len - 1] != '/')
		len--;
	if (len) {
		memcpy(parent, path, len);
		parent[len] = 0;
	} else {
		parent[0] = '.';
		parent[1] = 0;
	}
	if (raw_fstatat(dirfd, parent, &stat, 0) == 0)
		add_slot(change, slot_of(stat.st_dev, stat.st_ino));
}

void stamp(const struct change *change)
{
	int at;

	for (at = 0; at < change->count; at++)
		change_slot(change->slots[at]);
}
