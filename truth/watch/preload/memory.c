/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Mapping, stamps and ring. Nothing here allocates, locks or waits; every loop is bounded.
 */
#define _GNU_SOURCE
#include "memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

#include "databases/processes.h"
#include "raw.h"

enum role role = ROLE_NONE;
char memory_folder[FOLDER_BYTES];

static __u64 *control;
static __u64 *revisions;
static struct ring_head *ring;

static void *map_file(const char *name, unsigned long bytes)
{
	char path[FOLDER_BYTES + 16];
	struct stat stat;
	long fd, address;

	strcpy(path, memory_folder);
	strcat(path, name);
	fd = raw(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0);
	if (fd < 0)
		return 0;
	/* A shorter file would end the program at the first access. */
	if (!raw_fstat(fd, &stat) || (unsigned long)stat.st_size < bytes)
		address = -1;
	else
		address = raw6(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	raw(SYS_close, fd, 0, 0, 0);
	return address < 0 && address >= -4095 ? 0 : (void *)address;
}

static bool is_database(void)
{
	const char *name = program_invocation_short_name;

#define IS_CALLED(other) || !strcmp(name, other)
#define IS_OF_KIND(folder, NAME) NAME##_NAMES(IS_CALLED)
	return false DATABASES(IS_OF_KIND);
}

void map_memory(void)
{
	const char *text = getenv(PRELOAD_VARIABLE);
	enum role wanted;

	if (!text || role != ROLE_NONE)
		return;
	if (!strncmp(text, "server:", 7))
		wanted = ROLE_SERVER;
	else if (!strncmp(text, "writer:", 7))
		wanted = ROLE_WRITER;
	else
		return;
	/* A database server is asked by the server, and not a part of it: whoever asks it is not
	 * kept.
	 */
	if (wanted == ROLE_SERVER && is_database())
		wanted = ROLE_WRITER;
	text += 7;
	if (strlen(text) >= FOLDER_BYTES)
		return;
	strcpy(memory_folder, text);
	control = map_file("/control", CONTROL_BYTES);
	revisions = map_file("/revisions", SOURCE_SLOTS * 8UL);
	ring = map_file("/ring", RING_HEAD_BYTES + (unsigned long)RING_CELLS * CELL_BYTES);
	/* The pointers first: another thread may look at the role. */
	if (control && revisions && ring)
		__atomic_store_n(&role, wanted, __ATOMIC_RELEASE);
}

/* ---- the table: the writer's side of truth/coherence/src/table.rs ---- */

__u64 clock_of_table(void)
{
	return __atomic_load_n(control + CONTROL_CLOCK, __ATOMIC_SEQ_CST) & STAMP_MASK;
}

__u64 clock_after_changes_of(__u32 slot)
{
	__u64 now = clock_of_table();

	if ((__atomic_load_n(revisions + slot, __ATOMIC_SEQ_CST) & STAMP_MASK) < now)
		return now;
	return __atomic_add_fetch(control + CONTROL_CLOCK, 1, __ATOMIC_SEQ_CST) & STAMP_MASK;
}

__u32 slot_of(__u64 st_dev, __u64 st_ino)
{
	__u64 dev = (__u64)(major(st_dev) << 20 | minor(st_dev));
	__u64 mixed = st_ino + dev * 0xff51afd7ed558ccdULL;
	__u32 slot;

	mixed ^= mixed >> 32;
	slot = (mixed * 0x9e3779b97f4a7c15ULL) >> (64 - SLOT_BITS);
	return slot < SLOTS_RESERVED ? slot + SLOTS_RESERVED : slot;
}

/* Raises the slot's stamp to the clock, and returns the word with the flags that it has. The clock
 * is read once more when the stamp is there: see RevisionTable::record_change.
 */
static __u64 raise_stamp(__u32 slot)
{
	__u64 *revision = revisions + slot;
	__u64 clock, raised, word = __atomic_load_n(revision, __ATOMIC_SEQ_CST);
	int tries;

	for (tries = 0; tries < 64; tries++) {
		clock = clock_of_table();
		if ((word & STAMP_MASK) >= clock)
			return word;
		raised = (word & ~STAMP_MASK) | clock;
		if (__atomic_compare_exchange_n(revision, &word, raised, false, __ATOMIC_SEQ_CST,
						__ATOMIC_SEQ_CST))
			word = raised;
	}
	/* Beaten 64 times in a row. The largest stamp makes the slot uncacheable for good, which is
	 * safe.
	 */
	return __atomic_fetch_or(revision, STAMP_MASK, __ATOMIC_SEQ_CST);
}

void change_slot(__u32 slot)
{
	__u64 word;

	if (role == ROLE_NONE)
		return;
	word = raise_stamp(slot);
	if (word & TRACKED)
		raise_stamp(SLOT_DYNAMIC);
	if (word & WATCHED)
		__atomic_fetch_add(control + CONTROL_EPOCH, 1, __ATOMIC_SEQ_CST);
}

bool is_service_port(__u16 port)
{
	__u64 ports = __atomic_load_n(control + CONTROL_SERVICE_PORTS, __ATOMIC_RELAXED);

	return port == (ports & 0xffff) || port == (ports >> 16 & 0xffff) ||
	       port == (ports >> 32 & 0xffff) || port == ports >> 48;
}

void count_lost(void)
{
	__atomic_fetch_add(control + CONTROL_LOST, 1, __ATOMIC_SEQ_CST);
}

/* ---- the ring: the producer's side of truth/watch/src/witnesses/shared_ring.rs ---- */

/* Over the record and its number, so neither a torn record nor one of an earlier round is
 * taken for it.
 */
static __u64 check_of(const struct lookup_event *event, __u64 number)
{
	unsigned long bytes = sizeof(event->head) + event->head.path_len, at;
	__u64 check = number * 0x9e3779b97f4a7c15ULL + bytes, word;

	for (at = 0; at < bytes; at += 8) {
		word = 0;
		memcpy(&word, (const char *)event + at, bytes - at < 8 ? bytes - at : 8);
		check = (check ^ word) * 0xff51afd7ed558ccdULL;
		check ^= check >> 32;
	}
	return check;
}

void push_event(const struct lookup_event *event)
{
	struct ring_cell *cells = (struct ring_cell *)((char *)ring + RING_HEAD_BYTES), *cell;
	__u64 number = __atomic_load_n(&ring->claimed, __ATOMIC_RELAXED), state, free;
	int tries;

	for (tries = 0; tries < 1000; tries++) {
		cell = cells + number % RING_CELLS;
		free = number << 1;
		state = __atomic_load_n(&cell->state, __ATOMIC_ACQUIRE);
		if (state == free) {
			if (__atomic_compare_exchange_n(&ring->claimed, &number, number + 1, false,
							__ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
				goto claimed;
		} else if (state < free) {
			break; /* full */
		} else {
			number = __atomic_load_n(&ring->claimed, __ATOMIC_RELAXED);
		}
	}
	count_lost();
	return;
claimed:
	memcpy(&cell->event, event, sizeof(event->head) + event->head.path_len);
	__atomic_store_n(&cell->check, check_of(event, number), __ATOMIC_RELAXED);
	/* If this took so long that the reader has given the cell up, it has counted the record as
	 * lost.
	 */
	__atomic_compare_exchange_n(&cell->state, &free, free | 1, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_RELAXED);
}
