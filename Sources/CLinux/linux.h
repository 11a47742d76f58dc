#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#if !defined(__USE_GNU)
struct ucred { pid_t pid; uid_t uid; gid_t gid; };
int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags);
int memfd_create(const char *name, unsigned int flags);
#define MFD_CLOEXEC 1U
#define MFD_ALLOW_SEALING 2U
#endif
