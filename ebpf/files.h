/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * What a descriptor leads to. Included by witness.bpf.c.
 */
#ifndef NICACHE_FILES_H
#define NICACHE_FILES_H

struct inode_key {
	__u64 ino;
	__u64 dev;
};

static __always_inline struct file *file_of(struct task_struct *task, int fd)
{
	struct fdtable *table = task->files->fdt;
	struct file **slots;

	if (fd < 0 || (unsigned int)fd >= table->max_fds)
		return 0;
	slots = table->fd;
	return (struct file *)FIELD(struct hlist_head, slots + fd, first);
}

/* Of a socket. */
static __always_inline struct sock *sock_of(struct file *file)
{
	void *socket = FIELD(struct file, file, private_data);

	return socket ? FIELD(struct socket, socket, sk) : 0;
}

/* What kind of file it is (S_IFMT); 0: none. Enough to pass by what is neither file nor socket. */
static __always_inline __u16 kind_of_file(struct file *file)
{
	struct inode *inode = file ? FIELD(struct file, file, f_inode) : 0;

	return inode ? FIELD(struct inode, inode, i_mode) & S_IFMT : 0;
}

/* Inode number of a socket; 0: it is something else. */
static __always_inline __u64 socket_inode(struct file *file)
{
	struct inode *inode = file ? FIELD(struct file, file, f_inode) : 0;

	if (!inode || (FIELD(struct inode, inode, i_mode) & S_IFMT) != S_IFSOCK)
		return 0;
	return FIELD(struct inode, inode, i_ino);
}

/* What is said with the change time (`split_changed_ns` of crates/watch/src/event.rs). */
#define CHANGED_ASKED (1ULL << 63)      /* whatever changes the file next sets another one */
#define CHANGED_ONLY_TIMES (1ULL << 62) /* nothing but the change time tells of changes: see times.h */
#define CHANGED_BEING_WRITTEN 1         /* the time itself: somebody else has the file open for writing */

struct identity {
	__u64 ino;
	__u64 size;
	/* 0: unknown. */
	__u64 changed_ns;
	__u32 dev;
	__u32 links;
	__u32 uid;
	__u32 gid;
	__u16 mode;
};

static __always_inline bool identify(struct file *file, struct identity *identity)
{
	struct inode *inode = file ? FIELD(struct file, file, f_inode) : 0;
	struct super_block *super;
	struct change_time changed;
	unsigned long magic;

	if (!inode)
		return false;
	super = FIELD(struct inode, inode, i_sb);
	identity->ino = FIELD(struct inode, inode, i_ino);
	identity->size = FIELD(struct inode, inode, i_size);
	identity->changed_ns = 0;
	/* A writer moves the time first and the bytes then: while the file is open for writing, the time tells nothing. */
	if (FIELD(struct inode, inode, i_writecount.counter) > (FIELD(struct file, file, f_mode) & FMODE_WRITE ? 1 : 0))
		identity->changed_ns = CHANGED_BEING_WRITTEN;
	else if (change_time_of(inode, &changed))
		identity->changed_ns = (changed.sec * 1000000000ULL + changed.nsec) | (changed.asked ? CHANGED_ASKED : 0);
	magic = FIELD(struct super_block, super, s_magic);
	if (magic == BTRFS_MAGIC || magic == TMPFS_MAGIC)
		identity->changed_ns |= CHANGED_ONLY_TIMES;
	identity->dev = device_of(inode);
	identity->mode = FIELD(struct inode, inode, i_mode);
	identity->links = FIELD(struct inode, inode, i_nlink);
	identity->uid = FIELD(struct inode, inode, i_uid.val);
	identity->gid = FIELD(struct inode, inode, i_gid.val);
	return true;
}

#endif
