/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * The kernel's structures as far as they are read here. Offsets are relocated when the program is
 * loaded (CO-RE), so only names and types matter, and no vmlinux.h of one machine is baked in.
 * Fields that only some kernels have are asked for with bpf_core_field_exists.
 */
#ifndef NICACHE_KERNEL_H
#define NICACHE_KERNEL_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#ifndef bool
#define bool _Bool
#define true 1
#define false 0
#endif

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct super_block {
	__u32 s_dev;
	unsigned long s_magic;
	int s_stack_depth;
};

/* A name since 6.17. */
enum inode_state_flags_t {
	I_NEW = 1,
};

typedef struct {
	int counter;
} atomic_t;

struct timespec64 {
	__s64 tv_sec;
	long tv_nsec;
};

typedef struct {
	__u32 val;
} kuid_t;

typedef struct {
	__u32 val;
} kgid_t;

struct address_space;

struct inode {
	unsigned short i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	unsigned int i_nlink;
	kuid_t i_uid;
	kgid_t i_gid;
	enum inode_state_flags_t i_state;
	struct address_space *i_mapping;
	__s64 i_size;
	__s64 i_ctime_sec; /* since 6.11, and so the next */
	__u32 i_ctime_nsec;
	atomic_t i_writecount;
};

/* What CO-RE takes for `struct inode` of older kernels: it drops what follows the three
 * underscores.
 */
struct inode___before_6_11 {
	struct timespec64 __i_ctime;
};

struct inode___before_6_6 {
	struct timespec64 i_ctime;
};

/* A subvolume. */
struct btrfs_root {
	__u32 anon_dev;
};

struct btrfs_inode {
	struct btrfs_root *root;
	struct inode vfs_inode;
};

/* On an overlay. */
struct ovl_inode {
	struct dentry *__upperdentry;
	struct inode vfs_inode;
};

struct xfs_inode {
	struct inode i_vnode;
};

struct filename {
	const char *name;
	const char *uptr;
};

struct address_space {
	struct inode *host;
	atomic_t i_mmap_writable;
};

struct folio;

struct dentry {
	struct inode *d_inode;
};

struct file {
	unsigned int f_mode;
	unsigned int f_flags;
	void *private_data;
	struct inode *f_inode;
};

struct in6_addr {
	__u8 bytes[16];
};

struct sock_common {
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	__u32 skc_daddr;
	__u32 skc_rcv_saddr;
	__u16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
};

struct upid {
	int nr;
};

struct pid {
	struct upid numbers[1];
};

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
	struct pid *sk_peer_pid;
};

struct socket {
	struct file *file; /* none: the kernel's own */
	struct sock *sk;
};

struct kiocb {
	struct file *ki_filp;
};

struct linux_binprm {
	const char *filename;
	const char *interp; /* of a script, what runs it */
};

struct iomap_dio {
	struct kiocb *iocb;
};

/* A cell with a pointer: what arrays of pointers are read as, because a cast needs a structure of
 * the kernel.
 */
struct hlist_head {
	void *first;
};

struct open_how {
	__u64 flags;
	__u64 mode;
	__u64 resolve;
};

struct __kernel_timex {
	unsigned int modes;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

struct nsproxy {
	struct net *net_ns;
};

struct thread_info {
	__u32 status;
};

struct signal_struct {
	atomic_t live; /* threads that have not begun to end */
	int nr_threads;
};

struct fs_struct;

struct list_head {
	struct list_head *next;
};

struct kernfs_node {
	const char *name;
};

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp; /* in the hierarchy of version 2 */
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int flags;
	int exit_code;
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct list_head children;
	char comm[16];
	struct fs_struct *fs;
	struct files_struct *files;
	struct signal_struct *signal;
	struct nsproxy *nsproxy;
	struct css_set *cgroups;
	__u64 self_exec_id;
};

struct pt_regs {
	unsigned long r10;
	unsigned long r9;
	unsigned long r8;
	unsigned long bx;
	unsigned long cx;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long bp;
	unsigned long orig_ax;
};

#pragma clang attribute pop

/* Since 6.2: from there on a field is read by one load, otherwise by a call. */
extern void *bpf_rdonly_cast(const void *object, __u32 type) __weak __ksym;

/* A field of a structure of the kernel, by any pointer; 0 if nothing is mapped there. */
#define FIELD(type, pointer, field)                                                                \
	({                                                                                         \
		const void *object_ = (pointer);                                                   \
		typeof(((type *)0)->field) value_;                                                 \
		if (bpf_ksym_exists(bpf_rdonly_cast))                                              \
			value_ = ((type *)bpf_rdonly_cast(object_, bpf_core_type_id_kernel(type))) \
					 ->field;                                                  \
		else                                                                               \
			value_ = BPF_CORE_READ((type *)object_, field);                            \
		value_;                                                                            \
	})

struct change_time {
	__s64 sec;
	__u64 nsec;
	/* Somebody has asked for it: the next change sets another one (since 6.13). */
	bool asked;
};

#define CTIME_QUERIED (1U << 31)

/* The inode's change time, by the name that this kernel has for it. */
static __always_inline bool change_time_of(const void *inode, struct change_time *time)
{
	if (bpf_core_field_exists(((struct inode *)0)->i_ctime_sec)) {
		time->sec = FIELD(struct inode, inode, i_ctime_sec);
		time->nsec = FIELD(struct inode, inode, i_ctime_nsec);
	} else if (bpf_core_field_exists(((struct inode___before_6_11 *)0)->__i_ctime)) {
		time->sec = FIELD(struct inode___before_6_11, inode, __i_ctime.tv_sec);
		time->nsec = FIELD(struct inode___before_6_11, inode, __i_ctime.tv_nsec);
	} else if (bpf_core_field_exists(((struct inode___before_6_6 *)0)->i_ctime)) {
		time->sec = FIELD(struct inode___before_6_6, inode, i_ctime.tv_sec);
		time->nsec = FIELD(struct inode___before_6_6, inode, i_ctime.tv_nsec);
	} else {
		return false;
	}
	/* The upper bits are flags. */
	time->asked = time->nsec & CTIME_QUERIED;
	time->nsec &= 0x3fffffff;
	return true;
}

/* Kinds of file systems (linux/magic.h). */
#define EXT4_MAGIC 0xef53
#define XFS_MAGIC 0x58465342
#define BTRFS_MAGIC 0x9123683e
#define TMPFS_MAGIC 0x01021994
#define OVERLAY_MAGIC 0x794c7630
#define FUSE_MAGIC 0x65735546
#define NFS_MAGIC 0x6969

/* The device that programs are told: the file system's, but on Btrfs each subvolume has one of its
 * own, and its own inode numbers.
 */
static __always_inline __u32 device_of(const void *inode)
{
	const struct super_block *super = FIELD(struct inode, inode, i_sb);
	const void *outer;

	if (!bpf_core_type_exists(struct btrfs_inode) ||
	    FIELD(struct super_block, super, s_magic) != BTRFS_MAGIC)
		return FIELD(struct super_block, super, s_dev);
	outer = inode - bpf_core_field_offset(struct btrfs_inode, vfs_inode);
	return BPF_CORE_READ((const struct btrfs_inode *)outer, root, anon_dev);
}

#endif
