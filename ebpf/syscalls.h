/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR GPL-2.0
 *
 * System calls that the sys_exit witness looks at, by their x86-64 numbers, and the i386 numbers
 * that 32-bit programs (and int 0x80) use for those that change something.
 */
#ifndef NICACHE_SYSCALLS_H
#define NICACHE_SYSCALLS_H

/* One that has returned. */
struct call {
	__u64 nr;
	__s64 ret;
	__u64 args[4];
};

#define NR_read 0
#define NR_write 1
#define NR_open 2
#define NR_stat 4
#define NR_lstat 6
#define NR_mmap 9
#define NR_pread64 17
#define NR_pwrite64 18
#define NR_readv 19
#define NR_writev 20
#define NR_access 21
#define NR_sendfile 40
#define NR_accept 43
#define NR_sendto 44
#define NR_recvfrom 45
#define NR_sendmsg 46
#define NR_recvmsg 47
#define NR_shutdown 48
#define NR_listen 50
#define NR_execve 59
#define NR_truncate 76
#define NR_ftruncate 77
#define NR_getdents 78
#define NR_chdir 80
#define NR_fchdir 81
#define NR_rename 82
#define NR_mkdir 83
#define NR_rmdir 84
#define NR_creat 85
#define NR_link 86
#define NR_unlink 87
#define NR_symlink 88
#define NR_readlink 89
#define NR_chmod 90
#define NR_fchmod 91
#define NR_chown 92
#define NR_fchown 93
#define NR_lchown 94
#define NR_utime 132
#define NR_mknod 133
#define NR_statfs 137
#define NR_pivot_root 155
#define NR_adjtimex 159
#define NR_chroot 161
#define NR_settimeofday 164
#define NR_mount 165
#define NR_umount2 166
#define NR_setxattr 188
#define NR_lsetxattr 189
#define NR_fsetxattr 190
#define NR_getxattr 191
#define NR_lgetxattr 192
#define NR_listxattr 194
#define NR_llistxattr 195
#define NR_removexattr 197
#define NR_lremovexattr 198
#define NR_fremovexattr 199
#define NR_io_submit 209
#define NR_getdents64 217
#define NR_clock_settime 227
#define NR_utimes 235
#define NR_openat 257
#define NR_mkdirat 258
#define NR_mknodat 259
#define NR_fchownat 260
#define NR_futimesat 261
#define NR_newfstatat 262
#define NR_unlinkat 263
#define NR_renameat 264
#define NR_linkat 265
#define NR_symlinkat 266
#define NR_readlinkat 267
#define NR_fchmodat 268
#define NR_faccessat 269
#define NR_unshare 272
#define NR_splice 275
#define NR_utimensat 280
#define NR_accept4 288
#define NR_preadv 295
#define NR_pwritev 296
#define NR_name_to_handle_at 303
#define NR_open_by_handle_at 304
#define NR_clock_adjtime 305
#define NR_sendmmsg 307
#define NR_setns 308
#define NR_renameat2 316
#define NR_execveat 322
#define NR_copy_file_range 326
#define NR_preadv2 327
#define NR_pwritev2 328
#define NR_statx 332
#define NR_io_uring_setup 425
#define NR_io_uring_enter 426
#define NR_move_mount 429
#define NR_fsconfig 431
#define NR_openat2 437
#define NR_faccessat2 439
#define NR_mount_setattr 442
#define NR_fchmodat2 452
#define NR_setxattrat 463
#define NR_removexattrat 466
#define NR_open_tree_attr 467
#define NR_MAX 512

#define NR32_open 5
#define NR32_creat 8
#define NR32_mount 21
#define NR32_umount 22
#define NR32_umount2 52
#define NR32_settimeofday 79
#define NR32_old_mmap 90
#define NR32_socketcall 102
#define NR32_adjtimex 124
#define NR32_mmap2 192
#define NR32_pivot_root 217
#define NR32_setxattr 226
#define NR32_fremovexattr 237
#define NR32_clock_settime 264
#define NR32_openat 295
#define NR32_open_by_handle_at 342
#define NR32_clock_adjtime 343
#define NR32_listen 363
#define NR32_clock_settime64 404
#define NR32_clock_adjtime64 405

#define O_ACCMODE 3
#define O_WRONLY 1
#define O_CREAT 0100
#define O_APPEND 02000
#define O_TRUNC 01000
#define O_NOFOLLOW 0400000
#define O_PATH 010000000
#define AT_FDCWD (-100)
#define AT_SYMLINK_NOFOLLOW 0x100
#define LOOKUP_FOLLOW 1
#define MAP_TYPE 0x0f
#define MAP_SHARED 1
#define MAP_SHARED_VALIDATE 3
#define MAP_ANONYMOUS 0x20
#define MS_REMOUNT (1 << 5)
#define MS_BIND (1 << 12)
#define MS_UNBINDABLE (1 << 17)
#define MS_PRIVATE (1 << 18)
#define MS_SLAVE (1 << 19)
#define MS_SHARED (1 << 20)
#define FSCONFIG_CMD_RECONFIGURE 7
#define ADJ_SETOFFSET 0x0100
#define RESOLVE_BENEATH 8
#define RESOLVE_IN_ROOT 16
#define FMODE_WRITE 2
#define PF_EXITING 0x4
#define PF_IO_WORKER 0x10
#define PF_DUMPCORE 0x200
#define PF_KTHREAD 0x200000
#define S_IFMT 0170000
#define S_IFREG 0100000
#define S_IFDIR 0040000
#define S_IFSOCK 0140000
#define AF_UNIX 1
#define MSG_PEEK 2
#define AF_INET 2
#define AF_INET6 10
#define TS_COMPAT 2
#define X32_BIT 0x40000000

#endif
