/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Can a program be followed, and will it load this library?
 */
#ifndef NICACHE_PRELOAD_PROGRAMS_H
#define NICACHE_PRELOAD_PROGRAMS_H

#pragma GCC visibility push(hidden)

/* A process is there; about to end. */
void start_process(void);
void end_process(void);

/* Keeps what the environment must say for this library to be loaded by the next program. */
void remember_variables(void);
/* Puts it back. */
void keep_variables(void);

#define VARIABLES_MAX 4096

/* Number of variables if some are missing that a program needs for this library; 0: nothing to do.
 */
int count_incomplete(char *const environment[]);
/* Copies `count` variables, and adds the missing ones. */
void complete(char *const environment[], int count, char *into[]);

/* Declares `environment_now`: the environment with this library in it. */
#define WITH_VARIABLES(environment)                                         \
	int variables = count_incomplete(environment);                      \
	char *completed[variables ? variables + 3 : 1];                     \
	char *const *environment_now = variables ? completed : environment; \
	if (variables)                                                      \
	complete(environment, variables, completed)

/* Tells the watcher unless the program will load this library. */
void check_program(int dirfd, const char *path, char *const environment[]);
/* The same for one that is looked for in PATH. */
void check_file(const char *file, char *const environment[]);

#pragma GCC visibility pop

#endif
