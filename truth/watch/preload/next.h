/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The functions behind those that this library puts in their place. They are looked up when the
 * library starts, as a look-up takes locks; only what is called before that is looked up at its
 * call.
 */
#ifndef NICACHE_PRELOAD_NEXT_H
#define NICACHE_PRELOAD_NEXT_H

#pragma GCC visibility push(hidden)

struct next {
	void *function;
	const char *name;
};

void *find_next(struct next *next);
void find_all_next(void);

/* NEXT(open)(path, flags): the real one. */
#define NEXT(name)                                                                             \
	({                                                                                     \
		static struct next next_##name                                                 \
			__attribute__((section("nicache_next"), used)) = {0, #name};           \
		void *found_##name = __atomic_load_n(&next_##name.function, __ATOMIC_RELAXED); \
		(__typeof__(&name))(found_##name ? found_##name : find_next(&next_##name));    \
	})

/* A second name for a function of this library: on x86-64 files are 64 bits long by any name. */
#define ALSO(name, other) extern __typeof__(name) other __attribute__((alias(#name)))

#pragma GCC visibility pop

#endif
