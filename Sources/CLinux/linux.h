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
#define MFD_CLOEXEC 1U
#endif

// Swift cannot call a variadic function.

// As pidfd_open(2), which glibc has from 2.36 on: a descriptor that is readable once the process has ended, closed on
// exec.
static inline int process_descriptor(pid_t process) { return (int)syscall(SYS_pidfd_open, process, 0); }

// As ioctl(2) with FIONREAD: how many bytes a pipe holds.
static inline int bytes_waiting(int descriptor, int *count) { return ioctl(descriptor, FIONREAD, count); }
