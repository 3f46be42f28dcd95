/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * What the watcher asks the maps about. While somebody reads a map by a system call, the kernel
 * runs no program on an event on that processor; if it stops the reader in the middle, for as long
 * as that lasts (gaps.h). A program that reads it instead keeps nobody out. Included by
 * witness.bpf.c.
 *
 * The Rust side is truth/watch/src/witnesses/notes.rs.
 */
#ifndef NICACHE_NOTES_H
#define NICACHE_NOTES_H

#define NOTES_OF_DATABASES 0
#define NOTES_OF_MEMBERS 1
#define NOTES_OF_MAPPINGS 2

struct note_question {
	__u32 map;
	__u32 value; /* the answer */
	__u64 key[2];
};

/* 1: there is one. */
SEC("syscall")
int find_note(struct note_question *question)
{
	struct inode_key inode = {.ino = question->key[0], .dev = question->key[1]};
	__u32 process = question->key[0], *noted;
	__u8 *mapped;

	switch (question->map) {
	case NOTES_OF_DATABASES:
		noted = bpf_map_lookup_elem(&databases, &process);
		break;
	case NOTES_OF_MEMBERS:
		noted = bpf_map_lookup_elem(&members, &process);
		break;
	case NOTES_OF_MAPPINGS:
		mapped = bpf_map_lookup_elem(&mapped_files, &inode);
		question->value = mapped ? *mapped : 0;
		return mapped != 0;
	default:
		return 0;
	}
	question->value = noted ? *noted : 0;
	return noted != 0;
}

#endif
