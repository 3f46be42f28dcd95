/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Makes one call by the name of a case, in a folder with the files that the test has made there,
 * and prints its result and errno. With and without the library that must be the same.
 */
#define _GNU_SOURCE
#define _FORTIFY_SOURCE 0
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <linux/openat2.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

extern char **environ;
int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __xstat(int, const char *, struct stat *);
int __lxstat(int, const char *, struct stat *);
int __fxstatat(int, int, const char *, struct stat *, int);

static struct stat st;
static char text[PATH_MAX];
static int folder(void) { return open(".", O_RDONLY | O_DIRECTORY); }
static int file(int flags) { return open("file", flags); }
static long good(long fd) { return fd < 0 ? -1 : 0; }

struct test {
	const char *name;
	long (*call)(void);
};
#define CASE(name, ...) static long case_##name(void) { __VA_ARGS__; }
#define CASES                                                                                      \
	X(open, return good(open("file", O_RDONLY)))                                               \
	X(open_missing, return open("missing", O_RDONLY))                                          \
	X(open_fault, return open((char *)8, O_RDONLY))                                            \
	X(open_write, return good(open("file", O_WRONLY)))                                         \
	X(open_truncate, return good(open("file", O_RDONLY | O_TRUNC)))                            \
	X(open_create, return good(open("new", O_CREAT | O_WRONLY, 0640)) || stat("new", &st)      \
				      ? -1                                                         \
				      : st.st_mode & 0777)                                         \
	X(open_exists, return open("file", O_CREAT | O_EXCL | O_WRONLY, 0640))                     \
	X(open64, return good(open64("file", O_RDONLY)))                                           \
	X(openat, return good(openat(folder(), "file", O_RDONLY)))                                 \
	X(openat_bad, return openat(999, "file", O_RDONLY))                                        \
	X(openat64_nofollow, return openat64(AT_FDCWD, "link", O_RDONLY | O_NOFOLLOW))             \
	X(open_2, return good(__open_2("file", O_RDONLY)))                                         \
	X(open64_2, return good(__open64_2("file", O_RDONLY)))                                     \
	X(openat_2, return good(__openat_2(AT_FDCWD, "file", O_RDONLY)))                           \
	X(creat, return good(creat("file", 0600)))                                                 \
	X(mkstemp, char name[] = "tempXXXXXX"; return good(mkstemp(name)))                         \
	X(mkdtemp, char name[] = "tempXXXXXX"; return mkdtemp(name) ? 0 : -1)                      \
	X(stat, return stat("file", &st) ? -1 : st.st_size)                                        \
	X(stat_missing, return stat("missing", &st))                                               \
	X(stat_fault, return stat((char *)8, &st))                                                 \
	X(fstatat_worse, return fstatat(AT_FDCWD, (char *)8, &st, 0x40000000))                     \
	X(access_worse, return access((char *)8, 0x7fff))                                          \
	X(stat_below_file, return stat("file/x", &st))                                             \
	X(lstat, return lstat("link", &st) ? -1 : (long)S_ISLNK(st.st_mode))                       \
	X(fstatat, return fstatat(folder(), "file", &st, 0) ? -1 : st.st_size)                     \
	X(statx, struct statx stx;                                                                 \
	  return statx(AT_FDCWD, "file", 0, STATX_SIZE, &stx) ? -1 : (long)stx.stx_size)           \
	X(xstat, return __xstat(1, "file", &st) ? -1 : st.st_size)                                 \
	X(lxstat, return __lxstat(1, "link", &st) ? -1 : (long)S_ISLNK(st.st_mode))                \
	X(fxstatat, return __fxstatat(1, AT_FDCWD, "file", &st, 0) ? -1 : st.st_size)              \
	X(access, return access("file", R_OK))                                                     \
	X(access_missing, return access("missing", R_OK))                                          \
	X(eaccess, return eaccess("file", R_OK))                                                   \
	X(faccessat, return faccessat(AT_FDCWD, "file", R_OK, 0))                                  \
	X(readlink, return readlink("link", text, sizeof(text)))                                   \
	X(readlink_file, return readlink("file", text, sizeof(text)))                              \
	X(readlinkat, return readlinkat(AT_FDCWD, "link", text, sizeof(text)))                     \
	X(realpath, return realpath("link", text) ? 0 : -1)                                        \
	X(statfs, struct statfs fs; return statfs("file", &fs))                                    \
	X(statvfs, struct statvfs fs; return statvfs("file", &fs))                                 \
	X(getxattr, return getxattr("file", "user.none", text, 10))                                \
	X(opendir, return opendir("directory") ? 0 : -1)                                           \
	X(opendir_missing, return opendir("missing") ? 0 : -1)                                     \
	X(readdir, DIR *d = opendir("directory"); int n = 0; while (readdir(d)) n++; return n)     \
	X(scandir, struct dirent **list; return scandir("directory", &list, 0, alphasort))         \
	X(glob, glob_t g = {0}; int r = glob("directory/*", 0, 0, &g);                             \
	  return r ? -r : (long)g.gl_pathc)                                                        \
	X(nftw, return nftw("directory", walk, 4, 0))                                              \
	X(fts, char *paths[] = {"directory", 0};                                                   \
	  return fts_read(fts_open(paths, FTS_PHYSICAL, 0)) ? 0 : -1)                              \
	X(chdir, return chdir("directory"))                                                        \
	X(fchdir, return fchdir(folder()))                                                         \
	X(rename, return rename("file", "renamed"))                                                \
	X(rename_missing, return rename("missing", "renamed"))                                     \
	X(rename_fault, return rename((char *)8, "renamed"))                                       \
	X(renameat, return renameat(folder(), "file", AT_FDCWD, "directory/renamed"))              \
	X(renameat2, return renameat2(AT_FDCWD, "file", AT_FDCWD, "other", RENAME_EXCHANGE))       \
	X(unlink, return unlink("file"))                                                           \
	X(unlinkat, return unlinkat(AT_FDCWD, "file", 0))                                          \
	X(remove, return remove("file"))                                                           \
	X(link, return link("file", "hard"))                                                       \
	X(linkat, return linkat(AT_FDCWD, "file", folder(), "hard", 0))                            \
	X(symlink, return symlink("file", "soft"))                                                 \
	X(symlinkat, return symlinkat("file", AT_FDCWD, "directory/soft"))                         \
	X(mkdir, return mkdir("made", 0700))                                                       \
	X(mkdir_slash, return mkdir("directory/made/", 0700))                                      \
	X(mkdirat, return mkdirat(AT_FDCWD, "made", 0700))                                         \
	X(rmdir, return rmdir("empty"))                                                            \
	X(mkfifo, return mkfifo("fifo", 0600))                                                     \
	X(chmod, return chmod("file", 0600))                                                       \
	X(fchmod, return fchmod(file(O_RDONLY), 0600))                                             \
	X(fchmodat, return fchmodat(AT_FDCWD, "file", 0600, 0))                                    \
	X(chown, return chown("file", 1, 1))                                                       \
	X(lchown, return lchown("link", 1, 1))                                                     \
	X(utime, return utime("file", 0))                                                          \
	X(utimes, return utimes("file", 0))                                                        \
	X(utimensat, return utimensat(AT_FDCWD, "file", 0, 0))                                     \
	X(utimensat_null, return utimensat(AT_FDCWD, "file", (struct timespec *)8, 0))             \
	X(futimens, return futimens(file(O_RDONLY), 0))                                            \
	X(truncate, return truncate("file", 1))                                                    \
	X(ftruncate, return ftruncate(file(O_WRONLY), 1))                                          \
	X(fallocate, return fallocate(file(O_WRONLY), 0, 0, 9000))                                 \
	X(posix_fallocate, return posix_fallocate(file(O_WRONLY), 0, 9000))                        \
	X(write, return write(file(O_WRONLY), "abc", 3))                                           \
	X(write_bad, return write(999, "abc", 3))                                                  \
	X(write_fault, return write(file(O_WRONLY), (char *)8, 3))                                 \
	X(pwrite, return pwrite(file(O_WRONLY), "abc", 3, 1))                                      \
	X(pwrite64, return pwrite64(file(O_WRONLY), "abc", 3, 1))                                  \
	X(writev, struct iovec v = {"abc", 3}; return writev(file(O_WRONLY), &v, 1))               \
	X(pwritev2, struct iovec v = {"abc", 3}; return pwritev2(file(O_WRONLY), &v, 1, 0, 0))     \
	X(copy_file_range,                                                                         \
	  return copy_file_range(open("other", O_RDONLY), 0, file(O_WRONLY), 0, 5, 0))             \
	X(sendfile, int p[2]; socketpair(AF_UNIX, SOCK_STREAM, 0, p);                              \
	  return sendfile(p[0], file(O_RDONLY), 0, 5))                                             \
	X(sendfile_file, return sendfile(file(O_WRONLY), open("other", O_RDONLY), 0, 5))           \
	X(splice, int p[2]; if (pipe(p)) return -2; write(p[1], "abc", 3);                         \
	  return splice(p[0], 0, file(O_WRONLY), 0, 3, 0))                                         \
	X(mmap, return mapped(0))                                                                  \
	X(munmap, return mapped(1))                                                                \
	X(mmap_bad, return mmap(0, 4096, PROT_READ, MAP_SHARED, 999, 0) == MAP_FAILED ? -1 : 0)    \
	X(send_unix, int p[2]; socketpair(AF_UNIX, SOCK_STREAM, 0, p);                             \
	  return send(p[0], "abc", 3, 0))                                                          \
	X(write_unix, int p[2]; socketpair(AF_UNIX, SOCK_STREAM, 0, p);                            \
	  return write(p[0], "abc", 3))                                                            \
	X(sendmsg_unix, int p[2]; socketpair(AF_UNIX, SOCK_STREAM, 0, p); return message(p[0]))    \
	X(sendto_udp, return sendto(socket(AF_INET, SOCK_DGRAM, 0), "abc", 3, 0, loopback(),       \
				    sizeof(struct sockaddr_in)))                                   \
	X(connect_refused,                                                                         \
	  return connect(socket(AF_INET, SOCK_STREAM, 0), loopback(), sizeof(struct sockaddr_in))) \
	X(fopen, return fopen("file", "r") ? 0 : -1)                                               \
	X(fopen_missing, return fopen("missing", "r") ? 0 : -1)                                    \
	X(fopen_bad_mode, return fopen("file", "q") ? 0 : -1)                                      \
	X(fopen_write, return fopen("file", "w") ? 0 : -1)                                         \
	X(freopen, return freopen("file", "a", stdin) ? 0 : -1)                                    \
	X(fwrite, FILE *f = fopen("file", "r+"); tick(); return fwrite("abc", 1, 3, f))            \
	X(fprintf, FILE *f = fopen("file", "r+"); tick();                                          \
	  return fprintf(f, "%d and %s", 7, "seven"))                                              \
	X(fputs, FILE *f = fopen("file", "r+"); tick(); return fputs("abc", f) < 0)                \
	X(fputc_fflush, FILE *f = fopen("file", "r+"); fputc('x', f); tick(); return fflush(f))    \
	X(fclose, FILE *f = fopen("file", "r+"); fputc('x', f); tick(); return fclose(f))          \
	X(fputc_exit, FILE *f = fopen("file", "r+"); fputc('x', f); tick(); return 0)              \
	X(dlopen_deep, return deep())                                                              \
	X(fork, return child(fork()))                                                              \
	X(vfork, return child(vfork()))                                                            \
	X(posix_spawn, return spawn("/bin/true"))                                                  \
	X(posix_spawn_missing, return spawn("/bin/missing"))                                       \
	X(posix_spawnp, pid_t pid; char *a[] = {"true", 0};                                        \
	  return posix_spawnp(&pid, "true", 0, 0, a, environ))                                     \
	X(system, return system("exit 3"))                                                         \
	X(popen, FILE *f = popen("echo popen", "r"); return fgets(text, 10, f) ? pclose(f) : -1)   \
	X(execl, execl("/bin/echo", "echo", "one", "two", (char *)0); return -1)                   \
	X(execlp, execlp("echo", "echo", "one", "two", (char *)0); return -1)                      \
	X(execle, char *e[] = {"A=b", 0}; execle("/bin/sh", "sh", "-c", "echo $A", (char *)0, e);  \
	  return -1)                                                                               \
	X(execvp_missing, char *a[] = {"missing", 0}; return execvp("missing", a))                 \
	X(execve_script, char *a[] = {"script", 0}; return execve("./script", a, environ))         \
	X(execve_fault, char *a[] = {"file", 0}; return execve((char *)8, a, environ))             \
	X(execve_not, char *a[] = {"file", 0}; return execve("./file", a, environ))                \
	X(execve_static, char *a[] = {"static", 0}; return execve("./static", a, environ))         \
	X(syscall_statx, struct statx stx;                                                         \
	  return syscall(SYS_statx, AT_FDCWD, "file", 0, STATX_SIZE, &stx))                        \
	X(syscall_open, return good(syscall(SYS_openat, AT_FDCWD, "file", O_RDONLY, 0)))           \
	X(syscall_openat2, struct open_how how = {.flags = O_RDONLY};                              \
	  return good(syscall(SYS_openat2, AT_FDCWD, "file", &how, sizeof(how))))                  \
	X(syscall_write, return syscall(SYS_write, file(O_WRONLY), "abc", 3))                      \
	X(syscall_getpid, return syscall(SYS_getpid) == getpid())                                  \
	X(syscall_chmod, return syscall(SYS_chmod, "file", 0600))                                  \
	X(getaddrinfo_numeric, struct addrinfo *a; return getaddrinfo("127.0.0.1", "80", 0, &a))   \
	X(getaddrinfo_name, struct addrinfo *a; return getaddrinfo("localhost", "80", 0, &a))      \
	X(getpwnam, return getpwnam("root") ? 0 : -1)                                              \
	X(in_a_signal, signal(SIGUSR1, in_signal); raise(SIGUSR1); return in_signal_result)

/* What came before does not count: the test advances the table's clock. */
static void tick(void)
{
	char byte;

	if (write(2, "t", 1) != 1 || read(0, &byte, 1) != 1)
		abort();
}

static int walk(const char *path, const struct stat *s, int kind, struct FTW *where)
{
	(void)path, (void)s, (void)kind, (void)where;
	return 0;
}

static long mapped(int unmap)
{
	int fd = file(O_RDWR);
	char *at;

	if (!unmap)
		tick();
	at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return -1;
	close(fd);
	at[0] = 'z';
	if (unmap) {
		tick();
		return munmap(at, 4096);
	}
	return 0;
}

static struct sockaddr *loopback(void)
{
	static struct sockaddr_in address = {.sin_family = AF_INET};

	address.sin_port = htons(9);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return (struct sockaddr *)&address;
}

static long message(int fd)
{
	struct iovec part = {"abc", 3};
	struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1};

	return sendmsg(fd, &head, 0);
}

/* A library that binds to libc first would read the file past the one that is looked for. */
static long deep(void)
{
	void *library = dlopen("./deep.so", RTLD_NOW | RTLD_DEEPBIND);
	int (*look)(const char *) = library ? (int (*)(const char *))dlsym(library, "look") : 0;

	return look ? look("file") : -1;
}

static long child(pid_t pid)
{
	int status;

	if (pid == 0)
		_exit(7);
	return waitpid(pid, &status, 0) == pid ? WEXITSTATUS(status) : -1;
}

static long spawn(const char *path)
{
	pid_t pid;
	char *arguments[] = {(char *)path, 0};
	int status, error = posix_spawn(&pid, path, 0, 0, arguments, environ);

	if (error)
		return -error;
	waitpid(pid, &status, 0);
	return status;
}

static volatile long in_signal_result;
static void in_signal(int number)
{
	(void)number;
	in_signal_result = good(open("file", O_RDONLY));
}

#define X(name, ...) CASE(name, __VA_ARGS__)
CASES
#undef X

static const struct test tests[] = {
#define X(name, ...) {#name, case_##name},
	CASES
#undef X
};

int main(int count, char **arguments)
{
	size_t at;
	long result;

	for (at = 0; at < sizeof(tests) / sizeof(tests[0]); at++) {
		if (count < 2) {
			puts(tests[at].name);
			continue;
		}
		if (strcmp(tests[at].name, arguments[1]))
			continue;
		errno = 0;
		result = tests[at].call();
		/* Of a call that succeeds, errno means nothing. */
		printf("%ld %d\n", result, result < 0 ? errno : 0);
		return 0;
	}
	return count < 2 ? 0 : 2;
}
