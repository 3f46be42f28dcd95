/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef NICACHE_PRELOAD_MAPPING_H
#define NICACHE_PRELOAD_MAPPING_H

#pragma GCC visibility push(hidden)

/* Stamps every file that is mapped shared and may be written to. */
void stamp_mappings(void);

#pragma GCC visibility pop

#endif
