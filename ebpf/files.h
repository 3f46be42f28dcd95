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

struct identity {
	__u64 ino;
	__u64 size;
	/* 0: unknown. */
	__u64 changed_ns;
	__u32 dev;
	__u32 links;
	__u16 mode;
};

static __always_inline bool identify(struct file *file, struct identity *identity)
{
	struct inode *inode = file ? FIELD(struct file, file, f_inode) : 0;
	struct super_block *super;
	struct change_time changed;

	if (!inode)
		return false;
	super = FIELD(struct inode, inode, i_sb);
	identity->ino = FIELD(struct inode, inode, i_ino);
	identity->size = FIELD(struct inode, inode, i_size);
	identity->changed_ns = 0;
	/* A writer moves the time first and the bytes then: while the file is open for writing, the time tells nothing. */
	if (FIELD(struct inode, inode, i_writecount.counter) <= (FIELD(struct file, file, f_mode) & FMODE_WRITE ? 1 : 0) &&
	    change_time_of(inode, &changed))
		identity->changed_ns = changed.sec * 1000000000ULL + changed.nsec;
	identity->dev = FIELD(struct super_block, super, s_dev);
	identity->mode = FIELD(struct inode, inode, i_mode);
	identity->links = FIELD(struct inode, inode, i_nlink);
	return true;
}

#endif
