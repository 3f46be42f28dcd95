/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Names of hosts, users and groups: libc reads its files and asks servers by functions of its own.
 * A numeric address asks nobody.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <grp.h>
#include <netdb.h>
#include <pwd.h>

#include "next.h"
#include "report.h"

static bool is_numeric(const char *name)
{
	unsigned char address[16];

	return !name || inet_pton(AF_INET, name, address) == 1 ||
	       inet_pton(AF_INET6, name, address) == 1;
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
		struct addrinfo **found)
{
	int result = NEXT(getaddrinfo)(node, service, hints, found);

	if (role == ROLE_SERVER && !is_numeric(node))
		report_unseen(SYS_connect);
	return result;
}

#define HOST(type, name, parameters, arguments)               \
	type name parameters                                  \
	{                                                     \
		type result = NEXT(name) arguments;           \
                                                              \
		if (role == ROLE_SERVER && !is_numeric(host)) \
			report_unseen(SYS_connect);           \
		return result;                                \
	}
HOST(struct hostent *, gethostbyname, (const char *host), (host))
HOST(struct hostent *, gethostbyname2, (const char *host, int family), (host, family))
HOST(int, gethostbyname_r,
     (const char *host, struct hostent *entry, char *buffer, size_t bytes, struct hostent **found,
      int *error),
     (host, entry, buffer, bytes, found, error))
HOST(int, gethostbyname2_r,
     (const char *host, int family, struct hostent *entry, char *buffer, size_t bytes,
      struct hostent **found, int *error),
     (host, family, entry, buffer, bytes, found, error))

/* Of the sources that nsswitch.conf may name, files are told, and the others are as old as the
 * watcher allows.
 */
#define DATABASE(type, name, parameters, arguments, file)                   \
	type name parameters                                                \
	{                                                                   \
		type result = NEXT(name) arguments;                         \
		struct stat stat;                                           \
		int before = errno;                                         \
		long outcome = raw_fstatat(AT_FDCWD, file, &stat, 0);       \
                                                                            \
		errno = (int)-outcome;                                      \
		report_path(SYS_stat, AT_FDCWD, file, 0, outcome ? -1 : 0); \
		errno = before;                                             \
		return result;                                              \
	}
DATABASE(struct passwd *, getpwnam, (const char *user), (user), "/etc/passwd")
DATABASE(struct passwd *, getpwuid, (uid_t user), (user), "/etc/passwd")
DATABASE(int, getpwnam_r,
	 (const char *user, struct passwd *entry, char *buffer, size_t bytes,
	  struct passwd **found),
	 (user, entry, buffer, bytes, found), "/etc/passwd")
DATABASE(int, getpwuid_r,
	 (uid_t user, struct passwd *entry, char *buffer, size_t bytes, struct passwd **found),
	 (user, entry, buffer, bytes, found), "/etc/passwd")
DATABASE(struct group *, getgrnam, (const char *group), (group), "/etc/group")
DATABASE(struct group *, getgrgid, (gid_t group), (group), "/etc/group")
DATABASE(int, getgrnam_r,
	 (const char *group, struct group *entry, char *buffer, size_t bytes, struct group **found),
	 (group, entry, buffer, bytes, found), "/etc/group")
DATABASE(int, getgrgid_r,
	 (gid_t group, struct group *entry, char *buffer, size_t bytes, struct group **found),
	 (group, entry, buffer, bytes, found), "/etc/group")
