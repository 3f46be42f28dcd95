/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * What the server looks at, as events for the watcher; and what a process changes, as stamps before
 * and after its call.
 *
 * Every function here may be called anywhere: it keeps errno, takes no lock and allocates nothing.
 */
#ifndef NICACHE_PRELOAD_REPORT_H
#define NICACHE_PRELOAD_REPORT_H

#include <errno.h>
#include <stdbool.h>

#include "memory.h"
#include "raw.h"

#pragma GCC visibility push(hidden)

/* ---- events; nothing happens unless the process is the server's ---- */

struct lookup {
	__u16 kind;
	__u16 flags;
	__u32 nr;
	__u32 open_flags;
	int dirfd;
	const char *path;
	bool opened; /* the result is a descriptor */
};

/* `result` as libc returns it: -1 means that errno says why. */
void report_lookup(const struct lookup *lookup, long result);
/* The look-up of a path that leaves nothing behind, such as a stat. */
void report_path(__u32 nr, int dirfd, const char *path, __u16 flags, long result);
/* An open descriptor, or none (fd < 0). */
void report_descriptor(__u16 kind, __u32 nr, long result, int fd);
/* Something was written to a descriptor: to a file, or to a peer. */
void report_written(int fd, __u32 nr, long result);
void report_peer(int fd, __u32 nr, long result);
/* What cannot be followed. */
void report_unseen(__u32 nr);
void report_hidden(__u32 nr);
void forget_process_number(void);

/* ---- changes; nothing happens without shared memory ---- */

#define CHANGE_SLOTS_MAX 8

/* The sources of one call, stamped before it and after it. */
struct change {
	__u32 slots[CHANGE_SLOTS_MAX];
	int count;
};

/* Adds the file behind a descriptor. False: it is not a regular file or directory. */
bool add_descriptor(struct change *change, int fd);
/* Adds what the path leads to, if anything. `flags`: AT_SYMLINK_NOFOLLOW or 0. */
void add_inode(struct change *change, int dirfd, const char *path, int flags);
/* Adds what the path leads to, and the directory that has the name. */
void add_name(struct change *change, int dirfd, const char *path);
void add_slot(struct change *change, __u32 slot);
void add_everything(struct change *change);
void stamp(const struct change *change);

#pragma GCC visibility pop

#endif
