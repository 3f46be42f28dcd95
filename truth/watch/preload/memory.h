/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The memory that this library shares with the watcher and the cards: the revision table
 * (truth/coherence/src/table.rs) and the ring of events (truth/watch/src/witnesses/shared_ring.rs).
 * Mapped once, when the program starts; never unmapped.
 */
#ifndef NICACHE_PRELOAD_MEMORY_H
#define NICACHE_PRELOAD_MEMORY_H

#include <linux/types.h>
#include <stdbool.h>

#include "../../../ebpf/shared.h"

#pragma GCC visibility push(hidden)

/* What only this witness tells, beside the kinds of ebpf/shared.h. */
#define EVENT_UNSEEN 32  /* look-ups or a program that this library cannot follow, at this moment */
/* a process of the server is there; every event has its own number in `reserved` */
#define EVENT_STARTED 33
#define EVENT_ENDED 34   /* a process of the server is about to end, and has said what it changed */

/* Shared memory, by the folder that the variable names: `server:/folder` or `writer:/folder`. */
#define PRELOAD_VARIABLE "NICACHE_PRELOAD"
#define FOLDER_BYTES 512

#define RING_HEAD_BYTES 4096
#define RING_CELLS 16384
#define CELL_BYTES 384

struct ring_head {
	__u64 claimed; /* cells claimed so far */
	__u64 unused[7];
	__u64 taken; /* cells that the reader is done with */
};

/* `state`: number << 1 while the cell waits for the record of that number, and one more when that
 * is there.
 */
struct ring_cell {
	__u64 state;
	__u64 check;
	struct lookup_event event;
	__u8 unused[CELL_BYTES - 16 - sizeof(struct lookup_event)];
};

_Static_assert(sizeof(struct ring_cell) == CELL_BYTES, "as in shared_ring.rs");

/* What this process is. */
enum role {
	ROLE_NONE,   /* there is no shared memory: the calls are passed on */
	ROLE_WRITER, /* what it changes is to be seen */
	ROLE_SERVER, /* and what it looks at */
};

extern enum role role;
extern char memory_folder[FOLDER_BYTES];

/* Maps the memory that the environment names; `role` says whether it is there. */
void map_memory(void);

/* A source is about to change, or has. */
void change_slot(__u32 slot);
__u32 slot_of(__u64 st_dev, __u64 st_ino);
__u64 clock_of_table(void);
/* A clock by which what changed the slot until now can be told from what changes it from now on. */
__u64 clock_after_changes_of(__u32 slot);
bool is_service_port(__u16 port);
void count_lost(void);

/* Hands an event to the watcher, or counts it as lost. */
void push_event(const struct lookup_event *event);

#pragma GCC visibility pop

#endif
