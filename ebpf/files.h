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

/* One call that moves bytes by a socket. */
struct transfer {
	__u64 nr;
	__s64 ret;   /* how many, or what went wrong */
	__u64 bytes; /* where in the program's memory, of calls with one buffer */
	__u64 flags; /* of recvfrom */
	__u64 ino;   /* the socket's */
	const void *sk;
	__s32 fd;
	__u16 family;
	__u16 port; /* this end's */
};

#define IPPROTO_TCP 6

static __always_inline bool is_inet(struct transfer *transfer)
{
	return transfer->family == AF_INET || transfer->family == AF_INET6;
}

/* The process at the other end, in the initial pid namespace; 0: unknown. */
static __always_inline __u32 peer_process(struct transfer *transfer)
{
	const void *peer =
		transfer->family == AF_UNIX ? FIELD(struct sock, transfer->sk, sk_peer_pid) : 0;

	return peer ? FIELD(struct pid, peer, numbers[0].nr) : 0;
}

/* The port at the other end. */
static __always_inline __u32 peer_port(struct transfer *transfer)
{
	return __builtin_bswap16(FIELD(struct sock, transfer->sk, __sk_common.skc_dport));
}

/* Is the descriptor a socket? Tells which. */
static __always_inline bool is_by_socket(int fd, struct transfer *transfer)
{
	struct file *file = file_of(bpf_get_current_task_btf(), fd);
	void *socket;

	transfer->fd = fd;
	transfer->ino = socket_inode(file);
	if (!transfer->ino)
		return false;
	socket = FIELD(struct file, file, private_data);
	transfer->sk = socket ? FIELD(struct socket, socket, sk) : 0;
	if (!transfer->sk)
		return false;
	transfer->family = FIELD(struct sock, transfer->sk, __sk_common.skc_family);
	transfer->port = FIELD(struct sock, transfer->sk, __sk_common.skc_num);
	return true;
}

/* Is the call about a socket, by this descriptor? Tells which. */
static __always_inline bool is_transfer(struct call *call, int fd, struct transfer *transfer)
{
	if (!is_by_socket(fd, transfer))
		return false;
	transfer->nr = call->nr;
	transfer->ret = call->ret;
	transfer->bytes = call->args[1];
	transfer->flags = call->args[3];
	return true;
}

/* What is said with the change time (`split_changed_ns` of truth/watch/src/witnesses/event.rs). */
#define CHANGED_ASKED (1ULL << 63)      /* whatever changes the file next sets another one */
/* nothing but the change time tells of changes: see times.h */
#define CHANGED_ONLY_TIMES (1ULL << 62)
#define WRITERS_UNKNOWN 2
/* the time itself: somebody else has the file open for writing */
#define CHANGED_BEING_WRITTEN 1

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
	bool layered; /* on an overlay */
};

/* How often an inode on an overlay is open for writing in the upper layer: a mapping is one of that
 * layer's file, and outlives the overlay's own.
 */
static __always_inline int writers_below(const void *inode)
{
	const struct ovl_inode *outer;

	if (!bpf_core_type_exists(struct ovl_inode))
		return WRITERS_UNKNOWN;
	outer = inode - bpf_core_field_offset(struct ovl_inode, vfs_inode);
	return BPF_CORE_READ(outer, __upperdentry, d_inode, i_writecount.counter);
}

/* Files that somebody has mapped in a way in which they may store to them: such a change has no
 * witness of its own. Of ext4 each other has one, after its effect, so such a file may be open
 * for writing while a page is made of it. An entry stays for good. The key of zeroes: there was no
 * room for one, or it is not known which file it was.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct inode_key);
	__type(value, __u8);
} mapped_files SEC(".maps");

static __always_inline void note_unknown_mapping(void)
{
	struct inode_key unknown = {};
	__u8 value = 1;

	bpf_map_update_elem(&mapped_files, &unknown, &value, BPF_ANY);
}

/* The file is about to be mapped so. */
__noinline int note_mapping(__u64 ino, __u64 dev)
{
	struct inode_key key = {.ino = ino, .dev = dev};
	__u8 value = 1;

	/* The place of the key of zeroes is taken at the start. */
	if (bpf_map_update_elem(&mapped_files, &key, &value, BPF_ANY))
		note_unknown_mapping();
	return 0;
}

/* The same, of an inode of an overlay: what is mapped is the file in its upper layer, whose inode
 * is returned. 0: it is not known which file it is, as with every other stacked file system.
 */
static __always_inline const struct inode *note_mapping_below(const void *inode, __u64 magic)
{
	const struct inode *below = inode;
	const struct ovl_inode *outer;
	int depth;

	if (!bpf_core_type_exists(struct ovl_inode))
		magic = 0;
	/* As deep as the kernel lets file systems be stacked (FILESYSTEM_MAX_STACK_DEPTH). */
	for (depth = 0; depth < 2 && below && magic == OVERLAY_MAGIC; depth++) {
		outer = (void *)below - bpf_core_field_offset(struct ovl_inode, vfs_inode);
		below = BPF_CORE_READ(outer, __upperdentry, d_inode);
		magic = below ? BPF_CORE_READ(below, i_sb, s_magic) : 0;
	}
	if (below == inode || !below || BPF_CORE_READ(below, i_sb, s_stack_depth) > 0) {
		note_unknown_mapping();
		return 0;
	}
	if (magic == EXT4_MAGIC)
		note_mapping(BPF_CORE_READ(below, i_ino), device_of(below));
	return below;
}

/* May it change although no witness tells of it, while it is open for writing? */
static __always_inline bool may_be_stored_to(const void *inode, __u64 magic)
{
	struct inode_key key = {};
	const void *mapping;
	__u8 *unknown;

	if (magic != EXT4_MAGIC)
		return true;
	mapping = FIELD(struct inode, inode, i_mapping);
	if (mapping && FIELD(struct address_space, mapping, i_mmap_writable.counter) > 0)
		return true;
	unknown = bpf_map_lookup_elem(&mapped_files, &key);
	if (!unknown || *unknown)
		return true;
	key.ino = FIELD(struct inode, inode, i_ino);
	key.dev = device_of(inode);
	return bpf_map_lookup_elem(&mapped_files, &key) != 0;
}

static __always_inline bool identify(struct file *file, struct identity *identity)
{
	struct inode *inode = file ? FIELD(struct file, file, f_inode) : 0;
	struct super_block *super;
	struct change_time changed;
	unsigned long magic;
	int own;

	if (!inode)
		return false;
	super = FIELD(struct inode, inode, i_sb);
	identity->ino = FIELD(struct inode, inode, i_ino);
	identity->size = FIELD(struct inode, inode, i_size);
	identity->changed_ns = 0;
	magic = FIELD(struct super_block, super, s_magic);
	own = FIELD(struct file, file, f_mode) & FMODE_WRITE ? 1 : 0;
	/* A writer moves the time first and the bytes then: while the file is open for writing, the
	 * time tells nothing.
	 */
	identity->layered = magic == OVERLAY_MAGIC;
	if (FIELD(struct inode, inode, i_writecount.counter) > own ||
	    (identity->layered && writers_below(inode) > own))
		identity->changed_ns = may_be_stored_to(inode, magic) ? CHANGED_BEING_WRITTEN : 0;
	else if (change_time_of(inode, &changed))
		identity->changed_ns = (changed.sec * 1000000000ULL + changed.nsec) |
				       (changed.asked ? CHANGED_ASKED : 0);
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
