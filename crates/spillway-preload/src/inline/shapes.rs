//! What each system call of x86-64 uses by address. Sources: the manual pages of section 2, and
//! `include/linux/syscalls.h` of Linux 6.18 where they are silent. Lengths in bytes are those of the kernel's
//! structures.

use self::Part::*;

/// What lies at an address that a system call is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// So many bytes, whatever the arguments are.
    Bytes(usize),
    /// As many times the second number of bytes as the argument of the first number says.
    Times(usize, usize),
    /// A bit for each of so many as the argument of this number says, in words.
    Bits(usize),
    /// As many bytes as the word of four bytes says to which the argument of this number points.
    LengthAt(usize),
    /// A string that ends with a zero, no longer than a path.
    Text,
    /// As many `struct iovec` as the argument of this number says, and what they name.
    Vectors(usize),
    /// As many `struct iovec` as the argument of this number says, which name another process's memory.
    ForeignVectors(usize),
    /// A `struct msghdr` and what it names.
    Message,
    /// As many `struct mmsghdr` as the argument of this number says, and what they name.
    Messages(usize),
    /// Two words, of which the first leads to a mask of signals (pselect(2)).
    Mask,
    /// As many bytes as the request says that the argument of this number is (ioctl(2)), and more where it
    /// does not say.
    Control(usize),
    /// One byte for each page of so many bytes as the argument of this number says.
    BytePerPage(usize),
}

/// The longest path that the kernel takes (`PATH_MAX`).
pub const TEXT_BYTES: usize = 4096;

const STAT: Part = Bytes(144);
const STATFS: Part = Bytes(120);
const TIME: Part = Bytes(16);
const TIMER: Part = Bytes(32);
const RUSAGE: Part = Bytes(144);
const SIGINFO: Part = Bytes(128);
const WORD: Part = Bytes(8);
const HALF: Part = Bytes(4);

/// What a call uses: parts by the numbers of their arguments. `None` where that depends on more than the
/// arguments say, or is not known.
#[expect(clippy::too_many_lines, reason = "one table")]
pub fn shape(number: usize, a: [usize; 6]) -> Option<&'static [(usize, Part)]> {
    Some(match number as i64 {
        // Files by descriptor.
        libc::SYS_read
        | libc::SYS_write
        | libc::SYS_pread64
        | libc::SYS_pwrite64
        | libc::SYS_getdents
        | libc::SYS_getdents64 => &[(1, Times(2, 1))],
        libc::SYS_readv
        | libc::SYS_writev
        | libc::SYS_preadv
        | libc::SYS_pwritev
        | libc::SYS_preadv2
        | libc::SYS_pwritev2
        | libc::SYS_vmsplice => &[(1, Vectors(2))],
        libc::SYS_sendfile => &[(2, WORD)],
        libc::SYS_splice | libc::SYS_copy_file_range => &[(1, WORD), (3, WORD)],
        libc::SYS_fstat => &[(1, STAT)],
        libc::SYS_fstatfs => &[(1, STATFS)],
        libc::SYS_pipe | libc::SYS_pipe2 => &[(0, Bytes(8))],
        libc::SYS_close
        | libc::SYS_lseek
        | libc::SYS_dup
        | libc::SYS_dup2
        | libc::SYS_dup3
        | libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_sync
        | libc::SYS_syncfs
        | libc::SYS_flock
        | libc::SYS_ftruncate
        | libc::SYS_fchdir
        | libc::SYS_fchmod
        | libc::SYS_fchown
        | libc::SYS_fallocate
        | libc::SYS_fadvise64
        | libc::SYS_readahead
        | libc::SYS_sync_file_range
        | libc::SYS_tee
        | CLOSE_RANGE
        | EPOLL_CREATE
        | libc::SYS_epoll_create1
        | libc::SYS_eventfd
        | libc::SYS_eventfd2
        | libc::SYS_inotify_init
        | libc::SYS_inotify_init1
        | libc::SYS_inotify_rm_watch
        | libc::SYS_timerfd_create
        | libc::SYS_umask
        | libc::SYS_memfd_secret
        | libc::SYS_userfaultfd => &[],
        // Files by path.
        libc::SYS_open
        | libc::SYS_creat
        | libc::SYS_access
        | libc::SYS_chdir
        | libc::SYS_rmdir
        | libc::SYS_mkdir
        | libc::SYS_unlink
        | libc::SYS_chmod
        | libc::SYS_chown
        | libc::SYS_lchown
        | libc::SYS_truncate
        | libc::SYS_mknod
        | libc::SYS_chroot
        | libc::SYS_acct
        | libc::SYS_swapon
        | libc::SYS_swapoff
        | libc::SYS_umount2
        | libc::SYS_uselib
        | libc::SYS_memfd_create => &[(0, Text)],
        libc::SYS_openat
        | libc::SYS_mkdirat
        | libc::SYS_mknodat
        | libc::SYS_fchownat
        | libc::SYS_unlinkat
        | libc::SYS_fchmodat
        | FCHMODAT2
        | libc::SYS_faccessat
        | FACCESSAT2
        | libc::SYS_inotify_add_watch
        | libc::SYS_open_tree => &[(1, Text)],
        libc::SYS_openat2 => &[(1, Text), (2, Times(3, 1))],
        libc::SYS_stat | libc::SYS_lstat => &[(0, Text), (1, STAT)],
        libc::SYS_newfstatat => &[(1, Text), (2, STAT)],
        libc::SYS_statx => &[(1, Text), (4, Bytes(256))],
        libc::SYS_statfs => &[(0, Text), (1, STATFS)],
        libc::SYS_rename | libc::SYS_link | libc::SYS_symlink | libc::SYS_pivot_root => {
            &[(0, Text), (1, Text)]
        }
        libc::SYS_renameat | libc::SYS_renameat2 | libc::SYS_linkat | libc::SYS_move_mount => {
            &[(1, Text), (3, Text)]
        }
        libc::SYS_symlinkat => &[(0, Text), (2, Text)],
        libc::SYS_readlink => &[(0, Text), (1, Times(2, 1))],
        libc::SYS_readlinkat => &[(1, Text), (2, Times(3, 1))],
        libc::SYS_getcwd => &[(0, Times(1, 1))],
        libc::SYS_utime => &[(0, Text), (1, Bytes(16))],
        libc::SYS_utimes => &[(0, Text), (1, Bytes(32))],
        libc::SYS_futimesat | libc::SYS_utimensat => &[(1, Text), (2, Bytes(32))],
        libc::SYS_getxattr | libc::SYS_lgetxattr | libc::SYS_setxattr | libc::SYS_lsetxattr => {
            &[(0, Text), (1, Text), (2, Times(3, 1))]
        }
        libc::SYS_fgetxattr | libc::SYS_fsetxattr => &[(1, Text), (2, Times(3, 1))],
        libc::SYS_listxattr | libc::SYS_llistxattr => &[(0, Text), (1, Times(2, 1))],
        libc::SYS_flistxattr => &[(1, Times(2, 1))],
        libc::SYS_removexattr | libc::SYS_lremovexattr => &[(0, Text), (1, Text)],
        libc::SYS_fremovexattr => &[(1, Text)],
        libc::SYS_name_to_handle_at => &[(1, Text), (2, Bytes(136)), (3, HALF)],
        libc::SYS_open_by_handle_at => &[(1, Bytes(136))],
        libc::SYS_fanotify_mark => &[(4, Text)],
        // Waiting for files.
        libc::SYS_poll => &[(0, Times(1, 8))],
        libc::SYS_ppoll => &[(0, Times(1, 8)), (2, TIME), (3, WORD)],
        libc::SYS_select => &[(1, Bits(0)), (2, Bits(0)), (3, Bits(0)), (4, TIME)],
        libc::SYS_pselect6 => &[(1, Bits(0)), (2, Bits(0)), (3, Bits(0)), (4, TIME), (5, Mask)],
        libc::SYS_epoll_ctl => &[(3, Bytes(12))],
        libc::SYS_epoll_wait => &[(1, Times(2, 12))],
        libc::SYS_epoll_pwait => &[(1, Times(2, 12)), (4, WORD)],
        libc::SYS_epoll_pwait2 => &[(1, Times(2, 12)), (3, TIME), (4, WORD)],
        libc::SYS_signalfd | libc::SYS_signalfd4 => &[(1, WORD)],
        libc::SYS_timerfd_settime => &[(2, TIMER), (3, TIMER)],
        libc::SYS_timerfd_gettime => &[(1, TIMER)],
        // Sockets.
        libc::SYS_socket | libc::SYS_listen | libc::SYS_shutdown => &[],
        libc::SYS_socketpair => &[(3, Bytes(8))],
        libc::SYS_connect | libc::SYS_bind => &[(1, Times(2, 1))],
        libc::SYS_accept | libc::SYS_accept4 | libc::SYS_getsockname | libc::SYS_getpeername => {
            &[(1, LengthAt(2)), (2, HALF)]
        }
        libc::SYS_sendto => &[(1, Times(2, 1)), (4, Times(5, 1))],
        libc::SYS_recvfrom => &[(1, Times(2, 1)), (4, LengthAt(5)), (5, HALF)],
        libc::SYS_sendmsg | libc::SYS_recvmsg => &[(1, Message)],
        libc::SYS_sendmmsg => &[(1, Messages(2))],
        libc::SYS_recvmmsg => &[(1, Messages(2)), (4, TIME)],
        libc::SYS_setsockopt => &[(3, Times(4, 1))],
        libc::SYS_getsockopt => &[(3, LengthAt(4)), (4, HALF)],
        // Signals.
        libc::SYS_rt_sigaction => &[(1, Bytes(32)), (2, Bytes(32))],
        libc::SYS_rt_sigprocmask => &[(1, WORD), (2, WORD)],
        libc::SYS_rt_sigpending | libc::SYS_rt_sigsuspend => &[(0, WORD)],
        libc::SYS_rt_sigtimedwait => &[(0, WORD), (1, SIGINFO), (2, TIME)],
        libc::SYS_rt_sigqueueinfo => &[(2, SIGINFO)],
        libc::SYS_rt_tgsigqueueinfo => &[(3, SIGINFO)],
        libc::SYS_pidfd_send_signal => &[(2, SIGINFO)],
        libc::SYS_sigaltstack => &[(0, Bytes(24)), (1, Bytes(24))],
        libc::SYS_kill | libc::SYS_tkill | libc::SYS_tgkill | libc::SYS_pause | libc::SYS_alarm => &[],
        // Time.
        libc::SYS_nanosleep => &[(0, TIME), (1, TIME)],
        libc::SYS_clock_nanosleep => &[(2, TIME), (3, TIME)],
        libc::SYS_clock_gettime | libc::SYS_clock_getres | libc::SYS_clock_settime => &[(1, TIME)],
        libc::SYS_gettimeofday | libc::SYS_settimeofday => &[(0, TIME), (1, Bytes(8))],
        libc::SYS_time => &[(0, WORD)],
        libc::SYS_times => &[(0, Bytes(32))],
        libc::SYS_adjtimex => &[(0, Bytes(208))],
        libc::SYS_clock_adjtime => &[(1, Bytes(208))],
        libc::SYS_getitimer => &[(1, TIMER)],
        libc::SYS_setitimer => &[(1, TIMER), (2, TIMER)],
        libc::SYS_timer_create => &[(1, Bytes(64)), (2, HALF)],
        libc::SYS_timer_settime => &[(2, TIMER), (3, TIMER)],
        libc::SYS_timer_gettime => &[(1, TIMER)],
        libc::SYS_timer_getoverrun | libc::SYS_timer_delete => &[],
        // Locks.
        libc::SYS_futex => futex_shape(a[1]),
        libc::SYS_get_robust_list => &[(1, WORD), (2, WORD)],
        libc::SYS_semget | libc::SYS_msgget | libc::SYS_shmget | libc::SYS_shmat | libc::SYS_shmdt => &[],
        libc::SYS_semop => &[(1, Times(2, 6))],
        libc::SYS_semtimedop => &[(1, Times(2, 6)), (3, TIME)],
        libc::SYS_mq_open => &[(0, Text), (3, Bytes(64))],
        libc::SYS_mq_unlink => &[(0, Text)],
        libc::SYS_mq_timedsend => &[(1, Times(2, 1)), (4, TIME)],
        libc::SYS_mq_timedreceive => &[(1, Times(2, 1)), (3, HALF), (4, TIME)],
        libc::SYS_mq_notify => &[(1, Bytes(64))],
        libc::SYS_mq_getsetattr => &[(1, Bytes(64)), (2, Bytes(64))],
        // Processes.
        libc::SYS_wait4 => &[(1, HALF), (3, RUSAGE)],
        libc::SYS_waitid => &[(2, SIGINFO), (4, RUSAGE)],
        libc::SYS_getrusage => &[(1, RUSAGE)],
        libc::SYS_getrlimit | libc::SYS_setrlimit => &[(1, Bytes(16))],
        libc::SYS_prlimit64 => &[(2, Bytes(16)), (3, Bytes(16))],
        libc::SYS_sched_getaffinity | libc::SYS_sched_setaffinity => &[(2, Times(1, 1))],
        libc::SYS_sched_setscheduler => &[(2, HALF)],
        libc::SYS_sched_getparam | libc::SYS_sched_setparam => &[(1, HALF)],
        libc::SYS_sched_rr_get_interval => &[(1, TIME)],
        libc::SYS_sched_setattr | libc::SYS_sched_getattr => &[(1, Bytes(128))],
        libc::SYS_getcpu => &[(0, HALF), (1, HALF)],
        libc::SYS_getgroups | libc::SYS_setgroups => &[(1, Times(0, 4))],
        libc::SYS_getresuid | libc::SYS_getresgid => &[(0, HALF), (1, HALF), (2, HALF)],
        libc::SYS_capget | libc::SYS_capset => &[(0, Bytes(8)), (1, Bytes(24))],
        libc::SYS_process_vm_readv | libc::SYS_process_vm_writev => {
            &[(1, Vectors(2)), (3, ForeignVectors(4))]
        }
        libc::SYS_process_madvise => &[(1, ForeignVectors(2))],
        libc::SYS_getpid
        | libc::SYS_getppid
        | libc::SYS_gettid
        | libc::SYS_getuid
        | libc::SYS_geteuid
        | libc::SYS_getgid
        | libc::SYS_getegid
        | libc::SYS_setuid
        | libc::SYS_setgid
        | libc::SYS_setreuid
        | libc::SYS_setregid
        | libc::SYS_setresuid
        | libc::SYS_setresgid
        | libc::SYS_setfsuid
        | libc::SYS_setfsgid
        | libc::SYS_getpgid
        | libc::SYS_setpgid
        | libc::SYS_getpgrp
        | libc::SYS_getsid
        | libc::SYS_setsid
        | libc::SYS_getpriority
        | libc::SYS_setpriority
        | libc::SYS_sched_yield
        | libc::SYS_sched_getscheduler
        | libc::SYS_sched_get_priority_max
        | libc::SYS_sched_get_priority_min
        | libc::SYS_personality
        | libc::SYS_exit
        | libc::SYS_exit_group
        | libc::SYS_unshare
        | libc::SYS_setns
        | libc::SYS_kcmp
        | libc::SYS_pidfd_open
        | libc::SYS_pidfd_getfd
        | libc::SYS_ioprio_get
        | libc::SYS_ioprio_set
        | libc::SYS_vhangup
        | libc::SYS_iopl
        | libc::SYS_ioperm
        | libc::SYS_restart_syscall
        | libc::SYS_membarrier => &[],
        libc::SYS_execve => &[(0, Text), (1, WORD), (2, WORD)],
        libc::SYS_execveat => &[(1, Text), (2, WORD), (3, WORD)],
        // Memory.
        libc::SYS_mincore => &[(2, BytePerPage(1))],
        libc::SYS_mprotect
        | libc::SYS_pkey_mprotect
        | libc::SYS_pkey_alloc
        | libc::SYS_pkey_free
        | libc::SYS_msync
        | libc::SYS_mlock
        | libc::SYS_mlock2
        | libc::SYS_munlock
        | libc::SYS_mlockall
        | libc::SYS_munlockall
        | libc::SYS_remap_file_pages
        | libc::SYS_mmap
        | libc::SYS_munmap
        | libc::SYS_mremap
        | libc::SYS_madvise
        | libc::SYS_brk => &[],
        libc::SYS_mbind => &[(3, Bytes(128))],
        libc::SYS_set_mempolicy => &[(1, Bytes(128))],
        libc::SYS_get_mempolicy => &[(0, HALF), (1, Bytes(128))],
        libc::SYS_migrate_pages => &[(2, Bytes(128)), (3, Bytes(128))],
        libc::SYS_move_pages => &[(2, Times(1, 8)), (3, Times(1, 4)), (4, Times(1, 4))],
        // The machine.
        libc::SYS_uname => &[(0, Bytes(390))],
        libc::SYS_sysinfo => &[(0, Bytes(112))],
        libc::SYS_syslog => &[(1, Times(2, 1))],
        libc::SYS_getrandom => &[(0, Times(1, 1))],
        libc::SYS_sethostname | libc::SYS_setdomainname => &[(0, Times(1, 1))],
        libc::SYS_reboot => &[(3, Text)],
        libc::SYS_delete_module => &[(0, Text)],
        libc::SYS_finit_module => &[(1, Text)],
        // What its argument leads to is not known.
        libc::SYS_ioctl => &[(2, Control(1))],
        libc::SYS_ustat => &[(1, Bytes(32))],
        _ => return None,
    })
}

// Newer than libc's list, or under another name there.
const EPOLL_CREATE: i64 = 213;
const CLOSE_RANGE: i64 = 436;
const FACCESSAT2: i64 = 439;
const FCHMODAT2: i64 = 452;

/// By the operation (futex(2)): with a time, with a second word, or with neither.
fn futex_shape(operation: usize) -> &'static [(usize, Part)] {
    const FLAGS: usize = (libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) as usize;
    const FUTEX_LOCK_PI2: i32 = 13;
    match (operation & 0xFFFF_FFFF & !FLAGS) as i32 {
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET | libc::FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => {
            &[(0, HALF), (3, TIME)]
        }
        libc::FUTEX_WAIT_REQUEUE_PI => &[(0, HALF), (3, TIME), (4, HALF)],
        libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE | libc::FUTEX_CMP_REQUEUE_PI | libc::FUTEX_WAKE_OP => {
            &[(0, HALF), (4, HALF)]
        }
        _ => &[(0, HALF)],
    }
}
