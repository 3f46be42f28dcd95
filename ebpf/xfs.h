/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * Writes on XFS. Each but the direct ones ends with giving back the file's lock, also where the
 * change time is left alone (descriptors of xfs_open_by_handle). Included by witness.bpf.c.
 */
#ifndef NICACHE_XFS_H
#define NICACHE_XFS_H

#define XFS_IOLOCK_EXCL 1

SEC("tp_btf/xfs_iunlock")
int BPF_PROG(xfs_iunlock, struct xfs_inode *inode, unsigned int flags)
{
	/* Before 6.13 it is given back, too, when a file is closed that was only read. */
	if (inode && flags & XFS_IOLOCK_EXCL && inode->i_vnode.i_writecount.counter > 0)
		change_slot(slot_of(inode->i_vnode.i_sb->s_dev, inode->i_vnode.i_ino));
	return 0;
}

#endif
