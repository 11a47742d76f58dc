#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

// A file that was cut off while it is mapped, and one that the disk cannot read, end a process with SIGBUS. libsystemd's
// programs replace the page; its library does not.
static void journal_replace_page(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)context;
  const uintptr_t size = (uintptr_t)sysconf(_SC_PAGESIZE);
  void *page = (void *)((uintptr_t)info->si_addr & ~(size - 1));
  if (info->si_code <= 0 ||  // sent by a process
      mmap(page, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
    _exit(1);
}

// From now on, a mapped page that cannot be read has zeros. For a process that only reads journals.
static inline void replace_pages_that_cannot_be_read(void) {
  struct sigaction action = {.sa_sigaction = journal_replace_page, .sa_flags = SA_SIGINFO};
  sigaction(SIGBUS, &action, NULL);
}
