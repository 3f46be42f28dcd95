/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * Changes seen at the kernel's functions that all file systems have in common. Included by
 * witness.bpf.c, whose times.h is the other way to see what XFS, Btrfs and tmpfs have no witnesses
 * of their own for; and by calls.h, which says where programs at functions are attached.
 *
 * Why this is complete. Whoever changes bytes has the file open for writing, or mapped with such a
 * descriptor, and is told when it is opened (security_file_open comes after the file counts as open
 * for writing); until the last one closes it no fill is granted. What changes a length, a mode, an
 * owner or a time without a descriptor goes through notify_change, and is told when it is done.
 * Names are told before they change, with the directory locked until they have (registrar.rs says
 * why that is enough). Access control lists are told when they have been set. These functions are
 * called for system calls, io_uring, overlays, and the kernel's own servers alike.
 *
 * Who goes around them
 *   subvolumes and snapshots of Btrfs                        btrfs_ioctl, when it is done
 *   attributes by handle (XFS_IOC_ATTRMULTI_BY_HANDLE)       xfs_forget_acl
 *   mounts                                                   the calls themselves
 */
#ifndef NICACHE_VFS_H
#define NICACHE_VFS_H

/* ---- contents and attributes ---- */

SEC("fentry/security_file_open")
int BPF_PROG(security_file_open, struct file *file)
{
	struct inode *inode = file->f_inode;

	if (file->f_mode & FMODE_WRITE && inode && (inode->i_mode & S_IFMT) == S_IFREG)
		change_inode(inode);
	return 0;
}

SEC("fexit/notify_change")
int BPF_PROG(notify_change, void *mapping, struct dentry *dentry)
{
	struct inode *inode = dentry->d_inode;

	if (inode && lacks_witnesses(inode->i_sb))
		change_inode(inode);
	return 0;
}

/* ---- names ---- */

static __always_inline void change_names(struct inode *directory, struct dentry *dentry)
{
	struct inode *inode = dentry ? dentry->d_inode : 0;

	if (!directory || !lacks_witnesses(directory->i_sb))
		return;
	change_inode(directory);
	if (inode)
		change_inode(inode);
}

/* ---- access control lists and other attributes ---- */

/* Programs and overlays leave notes in attributes of these names, which say nothing about who may
 * do what.
 */
static __always_inline bool is_note(const char *name)
{
	char head[8] = {};

	bpf_probe_read_kernel(head, sizeof(head), name);
	return (head[0] == 'u' && head[1] == 's') || (head[0] == 't' && head[1] == 'r');
}

static __always_inline void change_attribute(struct inode *inode, bool note)
{
	if (!inode)
		return;
	if (note)
		change_inode(inode);
	else
		change_lists(slot_of(device_of(inode), inode->i_ino),
			     (inode->i_mode & S_IFMT) == S_IFDIR,
			     inode->i_sb->s_stack_depth > 0);
}

#define CHANGES_ATTRIBUTE(function)                                                    \
	SEC("fexit/" #function)                                                        \
	int BPF_PROG(function, void *mapping, struct dentry *dentry, const char *name) \
	{                                                                              \
		change_attribute(dentry->d_inode, is_note(name));                      \
		return 0;                                                              \
	}

CHANGES_ATTRIBUTE(vfs_setxattr)
CHANGES_ATTRIBUTE(vfs_removexattr)
CHANGES_ATTRIBUTE(vfs_set_acl)
CHANGES_ATTRIBUTE(vfs_remove_acl)

/* The kernel's NFS server calls it; of whom it is about differs between releases. */
SEC("fexit/set_posix_acl")
int BPF_PROG(set_posix_acl)
{
	change_slot(SLOT_EVERYTHING);
	return 0;
}

SEC("fexit/xfs_forget_acl")
int BPF_PROG(xfs_forget_acl, struct inode *inode)
{
	change_attribute(inode, false);
	return 0;
}

/* ---- Btrfs ---- */

#define BTRFS_IOCTL_MAGIC 0x94
#define BTRFS_IOC_SNAP_CREATE 1
#define BTRFS_IOC_SUBVOL_CREATE 14
#define BTRFS_IOC_SNAP_DESTROY 15
#define BTRFS_IOC_SNAP_CREATE_V2 23
#define BTRFS_IOC_SUBVOL_CREATE_V2 24
#define BTRFS_IOC_SNAP_DESTROY_V2 63

SEC("fexit/btrfs_ioctl")
int BPF_PROG(btrfs_ioctl, struct file *file, unsigned int command)
{
	if ((command >> 8 & 0xff) != BTRFS_IOCTL_MAGIC)
		return 0;
	switch (command & 0xff) {
	case BTRFS_IOC_SNAP_DESTROY_V2:
		/* It may be named by its number. */
		change_slot(SLOT_EVERYTHING); /* and what follows */
	case BTRFS_IOC_SNAP_CREATE:
	case BTRFS_IOC_SUBVOL_CREATE:
	case BTRFS_IOC_SNAP_DESTROY:
	case BTRFS_IOC_SNAP_CREATE_V2:
	case BTRFS_IOC_SUBVOL_CREATE_V2:
		/* The name is in the descriptor's directory. */
		if (file->f_inode)
			change_inode(file->f_inode);
	}
	return 0;
}

#endif
