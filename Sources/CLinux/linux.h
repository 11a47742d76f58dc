// What Swift's Glibc module leaves out of Linux. Its headers were built without _GNU_SOURCE, and a second module that
// defines it would describe the same types differently; so the few GNU names are declared here.
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
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
#define RENAME_NOREPLACE 1U
#endif

// Swift cannot call a variadic function.

// As pidfd_open(2), which glibc has from 2.36 on: a descriptor that is readable once the process has ended, closed on
// exec.
static inline int process_descriptor(pid_t process) { return (int)syscall(SYS_pidfd_open, process, 0); }

// As ioctl(2) with FIONREAD: how many bytes a pipe holds.
static inline int bytes_waiting(int descriptor, int *count) { return ioctl(descriptor, FIONREAD, count); }

// One message with `count` descriptors, 1 to 253 (SCM_MAX_FD of the kernel), and one byte for them to go with.
static inline ssize_t send_descriptors(int to, const int *descriptors, int count) {
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(253 * sizeof(int))];
  } control;
  char byte = 0;
  struct iovec data = {&byte, 1};
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
  return sendmsg(to, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// How many descriptors the next message brought, closed on exec, at most 253; -1 with errno when there is none.
static inline int receive_descriptors(int from, int *descriptors) {
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
  ssize_t size = recvmsg(from, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (size < 0) return -1;
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  if (size == 0 || !header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) return 0;
  int count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  __builtin_memcpy(descriptors, CMSG_DATA(header), count * sizeof(int));
  return count;
}
