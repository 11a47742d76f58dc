// Declarations that Swift's Glibc module lacks. Its headers were compiled without _GNU_SOURCE, and a second module that
// defines it would describe the same types differently; so the few GNU names are declared here.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <spawn.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#if !defined(__USE_GNU)
struct ucred {
  pid_t pid;
  uid_t uid;
  gid_t gid;
};
int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags);
int memfd_create(const char *name, unsigned int flags);
int pipe2(int ends[2], int flags);
int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t *actions, int first);
int pthread_setname_np(pthread_t thread, const char *name);
const char *sigabbrev_np(int signal);
int renameat2(int from, const char *old, int to, const char *new_name, unsigned int flags);
#define MFD_CLOEXEC 1U
#define MFD_ALLOW_SEALING 2U
#define F_ADD_SEALS 1033
#define F_GET_SEALS 1034
#define F_SEAL_SEAL 1
#define F_SEAL_SHRINK 2
#define F_SEAL_GROW 4
#define RENAME_NOREPLACE 1U
#endif
#if !defined(O_PATH)
#define O_PATH 010000000
#endif
#if !defined(SO_PASSRIGHTS)
#define SO_PASSRIGHTS 83
#endif

// Swift cannot call a variadic function.

// pidfd_open(2), which glibc has from 2.36 on: a descriptor that is readable once the process has ended, closed on
// exec.
static inline int process_descriptor(pid_t process) { return (int)syscall(SYS_pidfd_open, process, 0); }

// ioctl(2) with FIONREAD: the number of bytes in a pipe.
static inline int bytes_waiting(int descriptor, int *count) { return ioctl(descriptor, FIONREAD, count); }

// ioctl(2) with SIOCOUTQ: about as many bytes as the peer of a socket has not read.
static inline int bytes_unread(int descriptor, int *count) { return ioctl(descriptor, TIOCOUTQ, count); }

// fcntl(2) with F_ADD_SEALS: a memfd keeps its size, and gets no other seal. Returns 0, or -1 with errno.
static inline int seal_size(int descriptor) {
  return fcntl(descriptor, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW);
}

// fcntl(2) with F_GET_SEALS: whether the size of a memfd never changes.
static inline int has_sealed_size(int descriptor) {
  int seals = fcntl(descriptor, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) && (seals & F_SEAL_GROW);
}

// futex(2) with FUTEX_WAKE, over the bounds of processes: wakes at most `count` who wait on the word. Returns their number.
static inline int wake_some(const void *word, int count) {
  long woken = syscall(SYS_futex, word, FUTEX_WAKE, count, 0, 0, 0);
  return woken > 0 ? (int)woken : 0;
}

// futex(2) with FUTEX_WAIT, over the bounds of processes: returns when the word is not `value`, when it is woken, after the
// time, or without a cause.
static inline void wait_while(const void *word, unsigned value, int milliseconds) {
  struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
  syscall(SYS_futex, word, FUTEX_WAIT, value, &time, 0, 0);
}

// As send(2), with `count` descriptors, 1 to 253 (SCM_MAX_FD of the kernel), which arrive with the first byte.
static inline ssize_t send_with_descriptors(
    int to, const void *bytes, size_t size, const int *descriptors, int count, int flags) {
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(253 * sizeof(int))];
  } control;
  struct iovec data = {(void *)bytes, size};
  struct msghdr message = {0};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = CMSG_SPACE(count * sizeof(int));
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(count * sizeof(int));
  __builtin_memcpy(CMSG_DATA(header), descriptors, count * sizeof(int));
  return sendmsg(to, &message, flags | MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Sends one message with descriptors, as above, and one byte, which a message requires.
static inline ssize_t send_descriptors(int to, const int *descriptors, int count) {
  char byte = 0;
  return send_with_descriptors(to, &byte, 1, descriptors, count, 0);
}

// Closes a descriptor that another process has made. If it is a socket, its close does not wait until its own peer has read.
static inline void close_foreign(int descriptor) {
  struct linger off = {0, 0};
  setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &off, sizeof off);
  close(descriptor);
}

// As recv(2), with at most `*count` descriptors, closed on exec, which come with one of the bytes; the others are closed. Sets
// their number; -1: this process has no room for all.
static inline ssize_t receive_with_descriptors(int from, void *bytes, size_t size, int *descriptors, int *count) {
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(253 * sizeof(int))];
  } control;
  struct iovec data = {bytes, size};
  struct msghdr message = {0};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = sizeof control;
  int limit = *count, all = 0;
  *count = 0;
  ssize_t result = recvmsg(from, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (result < 0) return result;
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
    all = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  *count = all < limit ? all : limit;
  if (all > 0) __builtin_memcpy(descriptors, CMSG_DATA(header), *count * sizeof(int));
  for (int index = *count; index < all; index++) {
    int other;
    __builtin_memcpy(&other, CMSG_DATA(header) + index * sizeof(int), sizeof other);
    close_foreign(other);
  }
  if ((message.msg_flags & MSG_CTRUNC) && *count < limit) {
    while (*count > 0) close_foreign(descriptors[--*count]);
    *count = -1;
  }
  return result;
}

// As recv(2) with MSG_PEEK, which leaves the queue as it is. errno is EPROTO if descriptors come with the bytes.
static inline ssize_t peek_for_descriptors(int from, void *bytes, size_t size, int flags) {
  struct iovec data = {bytes, size};
  struct msghdr message = {0};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  ssize_t count = recvmsg(from, &message, flags | MSG_PEEK | MSG_DONTWAIT);
  if (count < 0 || !(message.msg_flags & MSG_CTRUNC)) return count;
  errno = EPROTO;
  return -1;
}

// As recv(2). If descriptors come with the bytes, both stay in the queue, and errno is EPROTO: to take them out would close
// the descriptors.
static inline ssize_t receive_without_descriptors(int from, void *bytes, size_t size, int flags) {
  ssize_t count = peek_for_descriptors(from, bytes, size, flags);
  if (count < 0) return count;
  return recv(from, bytes, (size_t)count < size ? (size_t)count : size, flags | MSG_DONTWAIT);
}

// What `close_with_thread` and its thread share.
struct closing {
  const int *descriptors;
  int count;
  int failure;
  sem_t is_alone, may_end;
};

static inline void *hold_descriptors(void *argument) {
  struct closing *closing = (struct closing *)argument;
  unsigned next = (unsigned)closing->descriptors[closing->count - 1] + 1;
  // CLOSE_RANGE_UNSHARE, 2: this thread has a table of descriptors of its own from here on.
  closing->failure = syscall(SYS_close_range, next, ~0U, 2U) == 0 ? 0 : errno;
  next = 0;
  for (int index = 0; index < closing->count && !closing->failure; index++) {
    unsigned held = (unsigned)closing->descriptors[index];
    if (held > next) syscall(SYS_close_range, next, held - 1, 0U);
    next = held + 1;
  }
  sem_post(&closing->is_alone);
  while (sem_wait(&closing->may_end) != 0) {}
  return 0;
}

// Closes descriptors, in ascending order, so that their last close is at the end of a thread, where the kernel does not wait for
// a lingering socket, nor for one that is in their queues. Returns 0, or an errno when they are still open.
static inline int close_with_thread(const int *descriptors, int count) {
  struct closing closing = {descriptors, count, 0};
  pthread_t thread;
  sem_init(&closing.is_alone, 0, 0);
  sem_init(&closing.may_end, 0, 0);
  int failure = pthread_create(&thread, 0, hold_descriptors, &closing);
  if (failure) return failure;
  while (sem_wait(&closing.is_alone) != 0) {}
  for (int index = 0; index < count && !closing.failure; index++) close(descriptors[index]);
  sem_post(&closing.may_end);
  pthread_join(thread, 0);
  return closing.failure;
}

// Receives the next message's descriptors, closed on exec, at most 253. Returns their number; -1 when there is no
// message.
static inline int receive_descriptors(int from, int *descriptors, int flags) {
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(253 * sizeof(int))];
  } control;
  char byte;
  struct iovec data = {&byte, 1};
  struct msghdr message = {0};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = sizeof control;
  ssize_t size = recvmsg(from, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT | flags);
  if (size <= 0) return -1;
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) return 0;
  int count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  __builtin_memcpy(descriptors, CMSG_DATA(header), count * sizeof(int));
  return count;
}

// setsockopt(2) with SO_RXQ_OVFL: later datagrams tell how many were dropped.
static inline int count_dropped_datagrams(int descriptor) {
  int on = 1;
  return setsockopt(descriptor, SOL_SOCKET, SO_RXQ_OVFL, &on, sizeof on);
}

// recvmsg(2): one datagram, with its length even if it is larger than `size`. Sets `dropped` to the number of datagrams that
// the kernel has dropped because the socket's buffer was full, if there is any; it wraps.
static inline ssize_t receive_datagram(int from, void *bytes, size_t size, uint32_t *dropped) {
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(uint32_t))];
  } control;
  struct iovec data = {bytes, size};
  struct msghdr message = {0};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = sizeof control;
  ssize_t count = recvmsg(from, &message, MSG_DONTWAIT | MSG_TRUNC);
  struct cmsghdr *header = count < 0 ? 0 : CMSG_FIRSTHDR(&message);
  if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SO_RXQ_OVFL)
    __builtin_memcpy(dropped, CMSG_DATA(header), sizeof *dropped);
  return count;
}

// ioctl(2) with TIOCEXCL: no process without privileges can open the terminal.
static inline int claim_terminal(int descriptor) { return ioctl(descriptor, TIOCEXCL); }

// ioctl(2) with TIOCNXCL.
static inline int release_terminal(int descriptor) { return ioctl(descriptor, TIOCNXCL); }

// prctl(2) with PR_SET_PDEATHSIG: sends the signal to this process when the thread that started it ends.
static inline int end_with_parent(int signal) { return prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0); }

// prctl(2) with PR_SET_DUMPABLE, 0: no process of the same user can inspect this one.
static inline int refuse_inspection(void) { return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); }

// Restricts the calling thread to computing, reading and writing descriptor 0, and ending the process. Every other
// system call fails with EPERM: no file, socket, process or thread, no signal to another process, no new code.
// Permanent, and inherited by child processes. Returns 0, or -1 with errno if the kernel does not support it.
static inline int confine_to_descriptor_0(void) {
#if defined(__x86_64__)
  const unsigned int architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
  const unsigned int architecture = AUDIT_ARCH_AARCH64;
#else
  errno = ENOSYS;
  return -1;
#endif
#if defined(__x86_64__) || defined(__aarch64__)
// Arguments are 64 bits wide, little endian; the filter compares the lower half of these.
#define STREAMD_LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define STREAMD_ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define STREAMD_REFUSE BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
#define STREAMD_CALL(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), STREAMD_ALLOW
#define STREAMD_CALL_WITH(number, index, value)                                                      \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4), STREAMD_LOAD(args[index]),                      \
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1), STREAMD_ALLOW, STREAMD_REFUSE
#define STREAMD_CALL_WITHOUT(number, index, bits)                                                    \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4), STREAMD_LOAD(args[index]),                      \
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 1, 0), STREAMD_ALLOW, STREAMD_REFUSE
  struct sock_filter filter[] = {
      STREAMD_LOAD(arch),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, architecture, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      STREAMD_LOAD(nr),
      STREAMD_CALL_WITH(SYS_read, 0, 0),
      STREAMD_CALL_WITH(SYS_write, 0, 0),
      STREAMD_CALL(SYS_brk),
      STREAMD_CALL_WITHOUT(SYS_mmap, 2, PROT_EXEC),
      STREAMD_CALL_WITHOUT(SYS_mprotect, 2, PROT_EXEC),
      STREAMD_CALL(SYS_mremap),
      STREAMD_CALL(SYS_munmap),
      STREAMD_CALL(SYS_madvise),
      STREAMD_CALL(SYS_futex),
      STREAMD_CALL(SYS_setitimer),
      STREAMD_CALL(SYS_clock_gettime),
      STREAMD_CALL(SYS_gettimeofday),
#if defined(SYS_time)
      STREAMD_CALL(SYS_time),
#endif
      STREAMD_CALL(SYS_getrandom),
      STREAMD_CALL(SYS_getpid),
      STREAMD_CALL(SYS_gettid),
      STREAMD_CALL(SYS_sched_yield),
      STREAMD_CALL(SYS_rt_sigprocmask),
      STREAMD_CALL(SYS_rt_sigreturn),
      STREAMD_CALL(SYS_restart_syscall),
      STREAMD_CALL_WITH(SYS_tgkill, 0, (unsigned int)getpid()),  // abort(3)
      STREAMD_CALL(SYS_exit),
      STREAMD_CALL(SYS_exit_group),
      STREAMD_REFUSE,
  };
#undef STREAMD_LOAD
#undef STREAMD_ALLOW
#undef STREAMD_REFUSE
#undef STREAMD_CALL
#undef STREAMD_CALL_WITH
#undef STREAMD_CALL_WITHOUT
  struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
#endif
}

/// Brings the cache line of an address closer; any address is valid.
static inline void prefetch(const void *address) { __builtin_prefetch(address); }
