// What Swift's Glibc module leaves out of Linux. Its headers were built without _GNU_SOURCE, and a second module that
// defines it would describe the same types differently; so the few GNU names are declared here.
#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
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
int pthread_setname_np(pthread_t thread, const char *name);
#define MFD_CLOEXEC 1U
#endif
