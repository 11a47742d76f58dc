#define _GNU_SOURCE
#include "shim.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static bool simulated;  // false in the process that starts the runs

void sim_abort(const char *message) {
  dprintf(2, "simulation: %s\n", message);
  _exit(70);
}

int sim_copy(void) {
  int code = errno;
  pid_t copy = fork();
  if (copy < 0) sim_abort("no process for a copy");
  while (copy > 0 && waitpid(copy, NULL, 0) < 0 && errno == EINTR) continue;
  errno = code;
  return copy == 0;
}

// A function of the library that is under ours.
#define REAL(type, name, ...)                                       \
  static type (*real)(__VA_ARGS__);                                 \
  if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name);  \
  if (!real) sim_abort("no " #name)

// MARK: Random numbers and the trace

static uint64_t random_state, trace = 0xcbf29ce484222325;

void sim_seed(uint64_t number) { random_state = number; }

uint64_t sim_random(void) {  // SplitMix64
  uint64_t z = (random_state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

void sim_trace_add(uint64_t value) { trace = (trace ^ value) * 0x100000001b3; }
uint64_t sim_trace(void) { return trace; }

uint32_t sim_fault_rate[SIM_FAULTS];
uint64_t sim_fault_count[SIM_FAULTS];
int sim_faults_on;
static bool dead;
static uint32_t calls_to_kill;

static bool fault(int kind) {
  if (!simulated || !sim_faults_on || dead || !sim_fault_rate[kind]) return false;
  if ((sim_random() & 0xffff) >= sim_fault_rate[kind]) return false;
  sim_fault_count[kind]++;
  sim_trace_add(1000 + kind);
  return true;
}

/// One more call that other processes, or the next one, would notice.
static void effect(void) {
  if (calls_to_kill && !dead && --calls_to_kill == 0) sim_kill();
}

// MARK: Memory

// At the same addresses in each run of a seed, so that what is ordered by address is in the same order. What is freed is
// spoilt, and stays unused for a while: to use it ends the process.
enum { HEADER = 16, BINS = 64 + 4 * 40, QUARANTINE = 2048 };
struct header {
  uint32_t bin, offset;  // from the block's start to what was given out
  uint64_t size;
};
struct arena {
  char *base, *next, *end;
  void *bins[BINS];
  void *quarantine[QUARANTINE];
  unsigned quarantined;
  int64_t live;
};
static struct arena arenas[2] = {{(char *)0x100000000000}, {(char *)0x200000000000}};
static struct arena *arena = &arenas[0];
static const size_t ARENA = 32ull << 30;

static unsigned bin_of(size_t total, size_t *rounded) {
  if (total <= 1024) {
    unsigned bin = (unsigned)((total + 15) / 16);
    *rounded = bin * 16;
    return bin - 1;
  }
  unsigned power = 63 - (unsigned)__builtin_clzll(total - 1);  // 2^power < total <= 2^(power + 1)
  size_t step = (size_t)1 << (power - 2);
  unsigned quarter = (unsigned)((total - 1 - ((size_t)1 << power)) / step);
  *rounded = ((size_t)1 << power) + (quarter + 1) * step;
  return 64 + (power - 10) * 4 + quarter;
}

static void *allocate(size_t size, size_t alignment) {
  if (!arena->next) {
    void *place = (void *)syscall(SYS_mmap, arena->base, ARENA, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0L);
    if (place != arena->base) sim_abort("no room for the heap");
    arena->next = arena->base;
    arena->end = arena->base + ARENA;
  }
  if (size > ARENA / 4) {
    errno = ENOMEM;
    return NULL;
  }
  size_t total = size + HEADER + (alignment > 16 ? alignment : 0), rounded;
  unsigned bin = bin_of(total, &rounded);
  char *block = arena->bins[bin];
  if (block) {
    arena->bins[bin] = *(void **)block;
  } else {
    if (arena->next + rounded > arena->end) sim_abort("the heap is full");
    block = arena->next;
    arena->next += rounded;
  }
  char *given = block + HEADER;
  if (alignment > 16) given = (char *)(((uintptr_t)given + alignment - 1) & ~(alignment - 1));
  struct header *header = (struct header *)(given - HEADER);
  *header = (struct header){bin, (uint32_t)(given - block), size};
  arena->live += (int64_t)size;
  return given;
}

void *malloc(size_t size) { return allocate(size, 16); }

void free(void *given) {
  if (!given) return;
  struct header *header = (struct header *)((char *)given - HEADER);
  struct arena *of = &arenas[(char *)given >= arenas[1].base];
  if (header->bin >= BINS) sim_abort("memory is freed twice, or spoilt");
  char *block = (char *)given - header->offset;
  unsigned bin = header->bin;
  of->live -= (int64_t)header->size;
  size_t size = header->size;
  if (size > 1 << 20) {
    uintptr_t start = ((uintptr_t)given + 4095) & ~4095ul, end = ((uintptr_t)given + size) & ~4095ul;
    syscall(SYS_madvise, start, end - start, MADV_DONTNEED);
  } else {
    memset(given, 0xdd, size < 512 ? size : 512);
  }
  header->bin = 0xdddddddd;
  if (size <= 4096) {  // waits, and another one has waited long enough
    unsigned place = of->quarantined++ % QUARANTINE;
    void *former = of->quarantine[place];
    of->quarantine[place] = block;
    ((uint32_t *)block)[1] = bin;
    if (!former) return;
    block = former;
    bin = ((uint32_t *)block)[1];
  }
  *(void **)block = of->bins[bin];
  of->bins[bin] = block;
}

void *calloc(size_t count, size_t size) {
  size_t total;
  if (__builtin_mul_overflow(count, size, &total)) return NULL;
  void *given = allocate(total, 16);
  if (given) memset(given, 0, total);
  return given;
}

size_t malloc_usable_size(void *given) {
  return given ? ((struct header *)((char *)given - HEADER))->size : 0;
}

void *realloc(void *given, size_t size) {
  void *moved = allocate(size, 16);
  if (!moved) return NULL;
  if (given) {
    size_t former = malloc_usable_size(given);
    memcpy(moved, given, former < size ? former : size);
    free(given);
  }
  return moved;
}

int posix_memalign(void **given, size_t alignment, size_t size) {
  *given = allocate(size, alignment);
  return *given ? 0 : ENOMEM;
}
void *aligned_alloc(size_t alignment, size_t size) { return allocate(size, alignment); }
void *memalign(size_t alignment, size_t size) { return allocate(size, alignment); }
int malloc_trim(size_t pad) { return 0; }
int64_t sim_heap_bytes(void) { return arena->live; }

// MARK: Time

static uint64_t now_ns = 1000000000000, wall_offset = 1700000000000000000;

static uint64_t tick(void) {
  if (fault(SIM_LATE)) {
    now_ns += sim_random() % 20000000;  // something else had the processor
  } else {
    now_ns += 100 + (now_ns & 255);
  }
  return now_ns;
}

uint64_t sim_now(void) { return now_ns; }
void sim_pass(uint64_t nanoseconds) { now_ns += nanoseconds; }
void sim_set_now(uint64_t nanoseconds) { now_ns = nanoseconds; }
uint64_t sim_wall(void) { return (now_ns + wall_offset) / 1000; }
void sim_set_wall(int64_t nanoseconds) { wall_offset += (uint64_t)nanoseconds; }

// Where this program is in memory.
extern char __executable_start, etext;

int clock_gettime(clockid_t clock, struct timespec *time) {
  if (!simulated) return (int)syscall(SYS_clock_gettime, clock, time);
  // No time passes in libraries: how often libcurl reads the clock depends on its version.
  char *caller = __builtin_return_address(0);
  uint64_t value = (caller >= &__executable_start && caller < &etext ? tick() : now_ns) + (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE ? wall_offset : 0);
  time->tv_sec = (time_t)(value / 1000000000);
  time->tv_nsec = (long)(value % 1000000000);
  return 0;
}

time_t time(time_t *result) {
  struct timespec now = {(time_t)((now_ns + wall_offset) / 1000000000), 0};
  if (!simulated) syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
  if (result) *result = now.tv_sec;
  return now.tv_sec;
}

ssize_t getrandom(void *bytes, size_t count, unsigned flags) {
  if (!simulated) return syscall(SYS_getrandom, bytes, count, flags);
  for (size_t i = 0; i < count; i++) ((uint8_t *)bytes)[i] = (uint8_t)sim_random();
  return (ssize_t)count;
}

/// The C library's own calls do not come here; those of the Swift runtime do, which gets its random numbers this way.
long syscall(long number, ...) {
  long arguments[6];
  va_list list;
  va_start(list, number);
  for (int i = 0; i < 6; i++) arguments[i] = va_arg(list, long);
  va_end(list);
  if (simulated && number == SYS_getrandom) return getrandom((void *)arguments[0], (size_t)arguments[1], 0);
#if defined(__x86_64__)
  register long four __asm__("r10") = arguments[3], five __asm__("r8") = arguments[4], six __asm__("r9") = arguments[5];
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(arguments[0]), "S"(arguments[1]), "d"(arguments[2]), "r"(four), "r"(five), "r"(six)
                   : "rcx", "r11", "memory");
#elif defined(__aarch64__)
  register long eight __asm__("x8") = number, one __asm__("x0") = arguments[0], two __asm__("x1") = arguments[1];
  register long three __asm__("x2") = arguments[2], four __asm__("x3") = arguments[3];
  register long five __asm__("x4") = arguments[4], six __asm__("x5") = arguments[5];
  __asm__ volatile("svc 0" : "+r"(one) : "r"(eight), "r"(two), "r"(three), "r"(four), "r"(five), "r"(six) : "memory");
  long result = one;
#endif
  if (result > -4096 && result < 0) {
    errno = (int)-result;
    return -1;
  }
  return result;
}

int usleep(useconds_t microseconds) {
  if (!simulated) {
    struct timespec time = {microseconds / 1000000, microseconds % 1000000 * 1000};
    return (int)syscall(SYS_nanosleep, &time, NULL);
  }
  now_ns += microseconds * 1000ull;
  return 0;
}

// MARK: Threads

enum { THREADS = 64, STACK = 512 << 10 };
enum wait { RUNNABLE, EPOLL, SEMAPHORE, QUEUE, OVER };
struct thread {
  ucontext_t context;
  char *stack;
  enum wait wait;
  uint64_t deadline;
  int result;
  // EPOLL
  int epoll, maximum;
  struct epoll_event *events;
  // SEMAPHORE
  void *semaphore;
  // QUEUE
  void *queue;
  void *(*body)(void *);
  void *argument;
  char name[16];
};
static struct thread threads[THREADS];
static struct thread *current;  // NULL: the simulation itself
static ucontext_t scheduler;

static int epoll_now(int epoll, struct epoll_event *events, int maximum) {
  return (int)syscall(SYS_epoll_wait, epoll, events, maximum, 0);
}

static void thread_main(void) {
  struct thread *self = current;
  self->body(self->argument);
  self->wait = OVER;
  current = NULL;
  swapcontext(&self->context, &scheduler);
}

int pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*body)(void *), void *argument) {
  REAL(int, pthread_create, pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  if (!simulated) return real(id, attributes, body, argument);
  for (int i = 0; i < THREADS; i++) {
    struct thread *thread = &threads[i];
    if (thread->stack && thread->wait != OVER) continue;
    if (!thread->stack) {
      thread->stack = (char *)syscall(SYS_mmap, NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
    }
    getcontext(&thread->context);
    thread->context.uc_stack.ss_sp = thread->stack;
    thread->context.uc_stack.ss_size = STACK;
    thread->context.uc_link = NULL;
    thread->wait = RUNNABLE;
    thread->body = body;
    thread->argument = argument;
    makecontext(&thread->context, thread_main, 0);
    *id = (pthread_t)thread;
    return 0;
  }
  return EAGAIN;
}
int pthread_detach(pthread_t id) { return 0; }
int pthread_setname_np(pthread_t id, const char *name) {
  struct thread *thread = (struct thread *)id;
  if (thread >= threads && thread < threads + THREADS) snprintf(thread->name, sizeof thread->name, "%s", name);
  return 0;
}

pthread_t pthread_self(void) {
  REAL(pthread_t, pthread_self, void);
  return current ? (pthread_t)current : real();
}

int sim_thread_count(void) {
  int count = 0;
  for (int i = 0; i < THREADS; i++) count += threads[i].stack && threads[i].wait != OVER;
  return count;
}

const char *sim_thread_name(void) {
  for (int i = 0; i < THREADS; i++) {
    if (threads[i].stack && threads[i].wait != OVER) return threads[i].name;
  }
  return "";
}

/// The current thread waits, and others run, until it is its turn again.
static int yield_as(enum wait wait, uint64_t deadline) {
  struct thread *self = current;
  self->wait = wait;
  self->deadline = deadline;
  current = NULL;
  swapcontext(&self->context, &scheduler);
  return self->result;
}

uint32_t sim_switch_rate;
uint64_t sim_switches;

/// Other threads run in the middle of what this one does: where it calls the kernel, and holds no lock.
static void switch_threads(void) {
  if (!current || dead || !sim_switch_rate || (sim_random() & 0xffff) >= sim_switch_rate) return;
  sim_switches++;
  yield_as(RUNNABLE, 0);
}

static bool is_busy(void *queue);

static int real_semaphore_wait(void *semaphore) {
  REAL(long, dispatch_semaphore_wait, void *, uint64_t);
  return real(semaphore, 0) == 0;
}

static bool resume(struct thread *thread) {
  switch (thread->wait) {
    case OVER: return false;
    case RUNNABLE: break;
    case EPOLL:
      if (fault(SIM_EPOLL_EINTR)) {
        thread->result = -1;
        errno = EINTR;
      } else {
        thread->result = epoll_now(thread->epoll, thread->events, thread->maximum);
        if (thread->result == 0 && thread->deadline > now_ns) return false;
      }
      break;
    case SEMAPHORE:
      if (real_semaphore_wait(thread->semaphore)) {
        thread->result = 0;
      } else if (thread->deadline <= now_ns) {
        thread->result = 1;
      } else {
        return false;
      }
      break;
    case QUEUE:
      if (is_busy(thread->queue)) return false;
  }
  int code = errno;
  thread->wait = RUNNABLE;
  current = thread;
  sim_trace_add((uint64_t)(thread - threads));
  errno = code;
  swapcontext(&scheduler, &thread->context);
  return true;
}

static int wait_for_events(int epoll, struct epoll_event *events, int maximum, uint64_t timeout) {
  if (!simulated || !current) return epoll_now(epoll, events, maximum);
  current->epoll = epoll;
  current->events = events;
  current->maximum = maximum;
  return yield_as(EPOLL, timeout == UINT64_MAX ? timeout : now_ns + timeout);
}

int epoll_wait(int epoll, struct epoll_event *events, int maximum, int timeout) {
  return wait_for_events(epoll, events, maximum, timeout < 0 ? UINT64_MAX : (uint64_t)timeout * 1000000);
}

int epoll_pwait2(int epoll, struct epoll_event *events, int maximum, const struct timespec *timeout, const sigset_t *set) {
  return wait_for_events(epoll, events, maximum,
                         timeout ? (uint64_t)timeout->tv_sec * 1000000000 + (uint64_t)timeout->tv_nsec : UINT64_MAX);
}

int epoll_ctl(int epoll, int operation, int descriptor, struct epoll_event *event) {
  if (operation == EPOLL_CTL_ADD && fault(SIM_EPOLL_ADD)) {
    errno = ENOSPC;
    return -1;
  }
  return (int)syscall(SYS_epoll_ctl, epoll, operation, descriptor, event);
}

// MARK: Dispatch

typedef void (^block_t)(void);
extern void *_Block_copy(const void *);
extern void _Block_release(const void *);
extern void *dispatch_get_global_queue(intptr_t, uintptr_t);
extern const char *dispatch_queue_get_label(void *);
void dispatch_retain(void *);
void dispatch_release(void *);
extern char _dispatch_source_type_timer;

enum { TASKS = 4096, SOURCES = 1024 };
struct task {
  void *queue;
  block_t block;
  void (*function)(void *);
  void *context;
  uint64_t due;
};
static struct task tasks[TASKS];
static int task_count;

struct source {
  bool isSource, isActive, isCancelled, isRunning;
  int references;
  uint64_t due, interval;
  block_t handler;
};
static struct source sources[SOURCES];
static int source_limit;  // those from here on were never used

static bool is_global(void *queue) {
  const char *label = dispatch_queue_get_label(queue);
  return !strncmp(label, "com.apple.root", 14);
}

static void add_task(struct task task) {
  if (task_count == TASKS) sim_abort("too many tasks");
  int place = task_count++;
  while (place > 0 && tasks[place - 1].due > task.due) {
    tasks[place] = tasks[place - 1];
    place--;
  }
  tasks[place] = task;
  dispatch_retain(task.queue);  // its owner may release it before the task runs
}

static uint64_t moment(uint64_t time) {
  if (time == UINT64_MAX) return time;
  if (time >> 62 == 3) {  // by the wall clock
    int64_t wall = -(int64_t)time - (int64_t)wall_offset;
    return wall > 0 ? (uint64_t)wall : 0;
  }
  return time & ~(1ull << 63);
}

/// Serial queues with a task that has begun: it may wait, while others run.
static void *busy_queues[64];
static int busy_count;

static bool is_busy(void *queue) {
  for (int i = 0; i < busy_count; i++) {
    if (busy_queues[i] == queue) return true;
  }
  return false;
}

static void begin_work(void *queue) {
  if (is_global(queue)) return;
  if (busy_count == 64) sim_abort("too many queues wait");
  busy_queues[busy_count++] = queue;
}

static void end_work(void *queue) {
  for (int i = 0; i < busy_count; i++) {
    if (busy_queues[i] != queue) continue;
    busy_queues[i] = busy_queues[--busy_count];
    return;
  }
}

static void run_task(int index) {
  struct task task = tasks[index];
  memmove(&tasks[index], &tasks[index + 1], (size_t)(--task_count - index) * sizeof task);
  sim_trace_add(2000);
  begin_work(task.queue);
  if (task.block) {
    task.block();
    _Block_release(task.block);
  } else {
    task.function(task.context);
  }
  end_work(task.queue);
  dispatch_release(task.queue);
}

void dispatch_async(void *queue, block_t block) {
  REAL(void, dispatch_async, void *, block_t);
  if (!simulated) return real(queue, block);
  add_task((struct task){queue, _Block_copy(block), NULL, NULL, 0});
}

void dispatch_async_f(void *queue, void *context, void (*function)(void *)) {
  REAL(void, dispatch_async_f, void *, void *, void (*)(void *));
  if (!simulated) return real(queue, context, function);
  add_task((struct task){queue, NULL, function, context, 0});
}

void dispatch_after(uint64_t time, void *queue, block_t block) {
  REAL(void, dispatch_after, uint64_t, void *, block_t);
  if (!simulated) return real(time, queue, block);
  add_task((struct task){queue, _Block_copy(block), NULL, NULL, moment(time)});
}

/// Nothing can run before time passes.
static void pass_to_next(void) {
  uint64_t next = sim_next_deadline();
  if (next == UINT64_MAX) sim_abort("everything waits, and nothing will happen");
  if (next > now_ns) now_ns = next;
}

void dispatch_sync(void *queue, block_t block) {
  REAL(void, dispatch_sync, void *, block_t);
  if (!simulated) return real(queue, block);
  while (is_busy(queue)) {
    if (current) {
      current->queue = queue;
      yield_as(QUEUE, 0);
    } else if (!sim_run_one()) {
      pass_to_next();
    }
  }
  for (int i = 0; i < task_count;) {  // what stands before it in the queue
    if (tasks[i].queue == queue && tasks[i].due <= now_ns) run_task(i), i = 0; else i++;
  }
  begin_work(queue);
  block();
  end_work(queue);
}

uint64_t dispatch_time(uint64_t when, int64_t delta) {
  REAL(uint64_t, dispatch_time, uint64_t, int64_t);
  if (!simulated) return real(when, delta);
  if (when == UINT64_MAX) return when;
  uint64_t base = when == 0 ? tick() : moment(when);
  if (delta < 0) return (uint64_t)-delta < base ? base + (uint64_t)delta : 1;
  return (uint64_t)delta > (UINT64_MAX >> 2) - base ? UINT64_MAX : base + (uint64_t)delta;
}

intptr_t dispatch_semaphore_wait(void *semaphore, uint64_t timeout) {
  REAL(intptr_t, dispatch_semaphore_wait, void *, uint64_t);
  if (!simulated) return real(semaphore, timeout);
  if (real_semaphore_wait(semaphore)) return 0;
  uint64_t deadline = timeout == 0 ? 0 : moment(timeout);
  if (current) {
    current->semaphore = semaphore;
    return yield_as(SEMAPHORE, deadline);
  }
  while (!real_semaphore_wait(semaphore)) {
    if (deadline <= now_ns) return 1;
    if (sim_run_one()) continue;
    uint64_t next = sim_next_deadline();
    if (next > deadline) next = deadline;
    if (next == UINT64_MAX) sim_abort("everything waits, and nothing will happen");
    if (next > now_ns) now_ns = next;
  }
  return 0;
}

static struct source *source_of(void *object) {
  struct source *source = object;
  return source >= sources && source < sources + SOURCES ? source : NULL;
}

void *dispatch_source_create(const void *type, uintptr_t handle, uintptr_t mask, void *queue) {
  REAL(void *, dispatch_source_create, const void *, uintptr_t, uintptr_t, void *);
  if (!simulated) return real(type, handle, mask, queue);
  if (type != &_dispatch_source_type_timer) sim_abort("a source that is no timer");
  for (int i = 0; i < SOURCES; i++) {
    if (sources[i].isSource) continue;
    sources[i] = (struct source){.isSource = true, .references = 1, .due = UINT64_MAX};
    if (i >= source_limit) source_limit = i + 1;
    return &sources[i];
  }
  sim_abort("too many timers");
}

static void drop_handler(struct source *source) {
  block_t handler = source->handler;
  if (!handler || source->isRunning) return;
  source->handler = NULL;
  _Block_release(handler);
}

void dispatch_source_set_timer(void *object, uint64_t start, uint64_t interval, uint64_t leeway) {
  struct source *source = source_of(object);
  source->due = moment(start);
  source->interval = interval;
}

void dispatch_source_set_event_handler(void *object, block_t block) {
  struct source *source = source_of(object);
  drop_handler(source);
  source->handler = block ? _Block_copy(block) : NULL;
}

void dispatch_source_cancel(void *object) {
  struct source *source = source_of(object);
  source->isCancelled = true;
  source->due = UINT64_MAX;
  drop_handler(source);
}

void dispatch_activate(void *object) {
  REAL(void, dispatch_activate, void *);
  struct source *source = source_of(object);
  if (source) source->isActive = true; else real(object);
}

void dispatch_resume(void *object) {
  REAL(void, dispatch_resume, void *);
  struct source *source = source_of(object);
  if (source) source->isActive = true; else real(object);
}

void dispatch_retain(void *object) {
  REAL(void, dispatch_retain, void *);
  struct source *source = source_of(object);
  if (source) source->references++; else real(object);
}

void dispatch_release(void *object) {
  REAL(void, dispatch_release, void *);
  struct source *source = source_of(object);
  if (!source) return real(object);
  if (--source->references > 0) return;
  drop_handler(source);
  if (!source->isRunning) source->isSource = false;
}

static void run_source(struct source *source) {
  source->due = source->interval == UINT64_MAX || source->interval == 0 ? UINT64_MAX : source->due + source->interval;
  if (source->due <= now_ns) source->due = now_ns + source->interval;  // missed ticks become one
  sim_trace_add(3000);
  source->isRunning = true;
  source->handler();
  source->isRunning = false;
  if (source->isCancelled || source->references == 0) drop_handler(source);
  if (source->references == 0) source->isSource = false;
}

static bool is_due(const struct source *source) {
  return source->isSource && source->isActive && source->handler && !source->isRunning && source->due <= now_ns;
}

/// A serial queue does one thing at a time, in order.
static bool is_next(int index) {
  if (tasks[index].due > now_ns) return false;
  if (is_global(tasks[index].queue)) return true;
  if (is_busy(tasks[index].queue)) return false;
  for (int i = 0; i < index; i++) {
    if (tasks[i].queue == tasks[index].queue && tasks[i].due <= now_ns) return false;
  }
  return true;
}

int sim_run_one(void) {
  if (current) sim_abort("a thread runs the scheduler");
  int thread_limit = THREADS;
  while (thread_limit > 0 && !threads[thread_limit - 1].stack) thread_limit--;
  int due[8], due_count = 0;
  for (int i = 0; i < task_count && due_count < 8; i++) {
    if (is_next(i)) due[due_count++] = i;
  }
  struct source *timer = NULL;
  for (int i = 0; i < source_limit && !timer; i++) {
    if (is_due(&sources[i])) timer = &sources[i];
  }
  int choices = thread_limit + due_count + (timer != NULL);
  if (choices == 0) return 0;
  int first = (int)(sim_random() % (uint64_t)choices);
  for (int i = 0; i < choices; i++) {
    int choice = (first + i) % choices;
    if (choice < thread_limit) {
      if (threads[choice].stack && resume(&threads[choice])) return 1;
    } else if (choice - thread_limit < due_count) {
      run_task(due[choice - thread_limit]);
      return 1;
    } else {
      run_source(timer);
      return 1;
    }
  }
  return 0;
}

uint64_t sim_next_deadline(void) {
  uint64_t next = UINT64_MAX;
  for (int i = 0; i < THREADS; i++) {
    if (threads[i].stack && threads[i].wait == RUNNABLE) return now_ns;
    bool waits = threads[i].stack && (threads[i].wait == EPOLL || threads[i].wait == SEMAPHORE);
    if (waits && threads[i].deadline < next) next = threads[i].deadline;
  }
  for (int i = 0; i < task_count; i++) {
    if (tasks[i].due < next) next = tasks[i].due;
  }
  for (int i = 0; i < source_limit; i++) {
    if (sources[i].isSource && sources[i].isActive && sources[i].due < next) next = sources[i].due;
  }
  return next;
}

// MARK: The life of the process under test

struct mapping {
  void *place;
  size_t size;
  int descriptor;
};
static struct mapping mappings[512];

void *mmap(void *place, size_t size, int protection, int flags, int descriptor, off_t offset) {
  void *mapped = (void *)syscall(SYS_mmap, place, size, protection, flags, descriptor, offset);
  if (mapped == MAP_FAILED || !simulated || !(flags & MAP_SHARED) || descriptor < 0) return mapped;
  for (int i = 0; i < 512; i++) {
    if (mappings[i].place) continue;
    mappings[i] = (struct mapping){mapped, size, descriptor};
    return mapped;
  }
  sim_abort("too many mappings");
}

int munmap(void *place, size_t size) {
  for (int i = 0; i < 512; i++) {
    if (mappings[i].place == place) mappings[i].place = NULL;
  }
  return (int)syscall(SYS_munmap, place, size);
}

void sim_kill(void) {
  if (dead) return;
  dead = true;
  calls_to_kill = 0;
  for (int i = 0; i < 512; i++) {
    struct mapping *mapping = &mappings[i];
    if (!mapping->place) continue;
    struct stat status;
    if (fstat(mapping->descriptor, &status) != 0 || (size_t)status.st_size < mapping->size) {
      sim_abort("what is mapped has become shorter");
    }
    void *again = (void *)syscall(SYS_mmap, mapping->place, mapping->size, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, mapping->descriptor, 0L);
    if (again != mapping->place) sim_abort("a mapping cannot be made private");
  }
}
void sim_kill_later(uint32_t count) { calls_to_kill = count; }
int sim_is_dead(void) { return dead; }
void sim_revive(void) { dead = false; }

// The simulation's own descriptors.
enum { FIRST_OWN = 600 };
static int base_descriptors;

int sim_own(int descriptor) {
  int own = fcntl(descriptor, F_DUPFD_CLOEXEC, FIRST_OWN);
  if (own < 0) sim_abort("no descriptor left");
  syscall(SYS_close, descriptor);
  return own;
}

int sim_open_descriptors(void) {
  int count = 0;
  for (int i = 3; i < FIRST_OWN; i++) count += fcntl(i, F_GETFD) >= 0;
  return count - base_descriptors;
}

// MARK: Sockets

ssize_t sim_real_send(int descriptor, const void *bytes, size_t count) {
  return syscall(SYS_sendto, descriptor, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT, NULL, 0);
}
ssize_t sim_real_recv(int descriptor, void *bytes, size_t count) {
  return syscall(SYS_recvfrom, descriptor, bytes, count, MSG_DONTWAIT, NULL, NULL);
}
ssize_t sim_real_write(int descriptor, const void *bytes, size_t count) {
  return syscall(SYS_write, descriptor, bytes, count);
}
int sim_waiting(int descriptor) {
  int count = 0;
  return ioctl(descriptor, FIONREAD, &count) == 0 ? count : 0;
}

static ssize_t failing(int code) {
  errno = code;
  return -1;
}

ssize_t send(int descriptor, const void *bytes, size_t count, int flags) {
  if (!simulated) return syscall(SYS_sendto, descriptor, bytes, count, flags, NULL, 0);
  switch_threads();
  effect();
  if (dead) return (ssize_t)count;
  if (fault(SIM_SEND_EINTR)) return failing(EINTR);
  if (fault(SIM_SEND_ENOBUFS)) return failing(ENOBUFS);
  if (fault(SIM_SEND_RESET)) {
    if (count > 1) syscall(SYS_sendto, descriptor, bytes, sim_random() % count, flags | MSG_DONTWAIT, NULL, 0);
    shutdown(descriptor, SHUT_RDWR);
    return failing(sim_random() & 1 ? EPIPE : ECONNRESET);
  }
  if (count > 1 && fault(SIM_SEND_SHORT)) count = 1 + sim_random() % (count - 1);
  ssize_t sent = syscall(SYS_sendto, descriptor, bytes, count, flags, NULL, 0);
  sim_trace_add((uint64_t)sent);
  return sent;
}

ssize_t recv(int descriptor, void *bytes, size_t count, int flags) {
  if (!simulated) return syscall(SYS_recvfrom, descriptor, bytes, count, flags, NULL, NULL);
  switch_threads();
  effect();
  if (dead) return failing(EAGAIN);
  if (fault(SIM_RECV_EINTR)) return failing(EINTR);
  if (fault(SIM_RECV_RESET)) {
    shutdown(descriptor, SHUT_RDWR);
    return failing(ECONNRESET);
  }
  if (count > 1 && fault(SIM_RECV_SHORT)) count = 1 + sim_random() % (count < 64 ? count - 1 : 64);
  ssize_t received = syscall(SYS_recvfrom, descriptor, bytes, count, flags, NULL, NULL);
  sim_trace_add((uint64_t)received);
  return received;
}

int accept4(int descriptor, struct sockaddr *address, socklen_t *length, int flags) {
  effect();
  if (dead) return (int)failing(EAGAIN);
  if (fault(SIM_ACCEPT)) return (int)failing(sim_random() & 1 ? EMFILE : ECONNABORTED);
  return (int)syscall(SYS_accept4, descriptor, address, length, flags);
}

ssize_t sendmsg(int descriptor, const struct msghdr *message, int flags) {
  effect();
  if (dead) return 1;
  if (fault(SIM_PARCEL)) return failing(ETOOMANYREFS);
  return syscall(SYS_sendmsg, descriptor, message, flags);
}

int socketpair(int domain, int type, int protocol, int pair[2]) {
  if (fault(SIM_SOCKETPAIR)) return (int)failing(EMFILE);
  return (int)syscall(SYS_socketpair, domain, type, protocol, pair);
}

int shutdown(int descriptor, int how) {
  if (dead) return 0;
  return (int)syscall(SYS_shutdown, descriptor, how);
}

/// What a client is, is in its socket's name, after the last hyphen: see `sim_connect`.
static bool peer_of(int descriptor, char peer[108]) {
  struct sockaddr_un address = {0};
  socklen_t length = sizeof address;
  if (syscall(SYS_getpeername, descriptor, &address, &length) != 0) return false;
  if (address.sun_family != AF_UNIX || length <= sizeof(sa_family_t) + 1 || address.sun_path[0]) return false;
  char name[108] = {0};
  memcpy(name, address.sun_path + 1, length - sizeof(sa_family_t) - 1);
  char *last = strrchr(name, '-');
  if (!last) return false;
  snprintf(peer, 108, "%s", last + 1);
  return true;
}

int getpeername(int descriptor, struct sockaddr *address, socklen_t *length) {
  char peer[108];
  if (!simulated || !peer_of(descriptor, peer) || peer[0] != 'a') {
    return (int)syscall(SYS_getpeername, descriptor, address, length);
  }
  union {
    struct sockaddr_in four;
    struct sockaddr_in6 six;
  } made = {0};
  socklen_t size = sizeof made.four;
  if (inet_pton(AF_INET, peer + 1, &made.four.sin_addr) == 1) {
    made.four.sin_family = AF_INET;
  } else {
    memset(&made, 0, sizeof made);
    if (inet_pton(AF_INET6, peer + 1, &made.six.sin6_addr) != 1) sim_abort("a client's address is none");
    made.six.sin6_family = AF_INET6;
    size = sizeof made.six;
  }
  memcpy(address, &made, *length < size ? *length : size);
  *length = size;
  return 0;
}

int getsockopt(int descriptor, int level, int option, void *value, socklen_t *length) {
  if (simulated && level == SOL_SOCKET && option == SO_PEERCRED) {
    char peer[108];
    bool has_user = peer_of(descriptor, peer) && peer[0] == 'u';
    uid_t user = has_user ? (uid_t)atoll(peer + 1) : (uid_t)-1;
    *(struct ucred *)value = (struct ucred){has_user ? 4711 : 0, user, user};
    return 0;
  }
  if (simulated && level == SOL_SOCKET && option == SO_PEERGROUPS) {
    *length = 0;
    return 0;
  }
  return (int)syscall(SYS_getsockopt, descriptor, level, option, value, length);
}

/// Buffers stay small, whatever the server asks for.
int setsockopt(int descriptor, int level, int option, const void *value, socklen_t length) {
  if (simulated && level == SOL_SOCKET && option == SO_SNDBUF) return 0;
  return (int)syscall(SYS_setsockopt, descriptor, level, option, value, length);
}

static socklen_t abstract(struct sockaddr_un *address, const char *name) {
  memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  strncpy(address->sun_path + 1, name, sizeof address->sun_path - 2);
  return (socklen_t)(sizeof(sa_family_t) + 1 + strlen(name));
}

static uint64_t client_count;

/// What the program under test is to itself.
static const char *const own_user = "u4242";

static void name_client(int descriptor, const char *peer) {
  struct sockaddr_un address;
  char own[108];
  snprintf(own, sizeof own, "sim-%d-%llu-%s", (int)syscall(SYS_getpid), (unsigned long long)client_count++, peer);
  socklen_t length = abstract(&address, own);
  if (bind(descriptor, (struct sockaddr *)&address, length) != 0) sim_abort("a client's socket has no name");
}

int sim_connect(const char *name, const char *peer, int send_buffer) {
  int descriptor = sim_own(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  struct sockaddr_un address;
  if (peer[0]) name_client(descriptor, peer);
  if (send_buffer > 0) syscall(SYS_setsockopt, descriptor, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer);
  socklen_t length = abstract(&address, name);
  if (connect(descriptor, (struct sockaddr *)&address, length) == 0) return descriptor;
  int code = errno;
  syscall(SYS_close, descriptor);
  errno = code;
  return -1;
}

/// What the program under test connects to is, by the path `/` and a listening socket's name, itself.
int connect(int descriptor, const struct sockaddr *wanted, socklen_t length) {
  const char *path = wanted->sa_family == AF_UNIX ? ((const struct sockaddr_un *)wanted)->sun_path : "";
  if (!simulated || strncmp(path, "/sim_", 5)) return (int)syscall(SYS_connect, descriptor, wanted, length);
  effect();
  if (dead) return (int)failing(ECONNREFUSED);
  struct sockaddr_un address;
  name_client(descriptor, own_user);
  length = abstract(&address, path + 1);
  return (int)syscall(SYS_connect, descriptor, &address, length);
}

int sim_listen(const char *name) {
  int descriptor = sim_own(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // What is accepted has the listening socket's buffer.
  int size = 4608;
  syscall(SYS_setsockopt, descriptor, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  struct sockaddr_un address;
  socklen_t length = abstract(&address, name);
  if (bind(descriptor, (struct sockaddr *)&address, length) != 0 || listen(descriptor, 64) != 0) {
    sim_abort("the socket cannot be listened on");
  }
  return descriptor;
}

int sim_listen_at(const char *path) {
  int descriptor = sim_own(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  if (bind(descriptor, (struct sockaddr *)&address, sizeof address) != 0 || listen(descriptor, 64) != 0) {
    sim_abort("the upstream's socket cannot be listened on");
  }
  return descriptor;
}

int sim_accept(int listener) {
  int descriptor = (int)syscall(SYS_accept4, listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (descriptor < 0) return -1;
  int size = 4608;
  syscall(SYS_setsockopt, descriptor, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  return sim_own(descriptor);
}

// MARK: Files

enum { FILES = 256, RENAMES = 64 };
/// What the disk has of a file for certain.
struct durable {
  char name[160];  // of the file; empty: nothing
  size_t size;
  char *bytes;
};
static struct durable durable[FILES];
/// A name that the disk may not have yet.
static struct {
  char name[160];
  int former;  // what had the name before; -1: nothing
  struct durable durable;
  bool stays;  // over a loss of power
} renames[RENAMES];
static int rename_count;
static char folder[128];

static bool in_folder(const char *path) { return simulated && folder[0] && !strncmp(path, folder, strlen(folder)); }

static bool is_file(int descriptor) {
  struct stat status;
  return fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

static struct durable *durable_of(const char *name) {
  for (int i = 0; i < FILES; i++) {
    if (!strcmp(durable[i].name, name)) return &durable[i];
  }
  return NULL;
}

static void forget(struct durable *file) {
  free(file->bytes);
  *file = (struct durable){0};
}

static void make_durable(int descriptor) {
  struct stat status;
  if (fstat(descriptor, &status) != 0) return;
  if (S_ISDIR(status.st_mode)) {
    for (int i = 0; i < rename_count; i++) {
      if (renames[i].former >= 0) syscall(SYS_close, renames[i].former);
      forget(&renames[i].durable);
    }
    rename_count = 0;
    return;
  }
  char path[40], name[160] = {0};
  snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
  if (readlink(path, name, sizeof name - 1) < 0) sim_abort("a file has no name");
  struct durable *place = durable_of(name);
  for (int i = 0; i < FILES && !place; i++) {
    if (!durable[i].name[0]) place = &durable[i];
  }
  if (!place) sim_abort("too many files");
  free(place->bytes);
  struct arena *former = arena;
  arena = &arenas[0];  // the run's heap is not to depend on the size of a file
  *place = (struct durable){.size = (size_t)status.st_size, .bytes = malloc((size_t)status.st_size + 1)};
  arena = former;
  snprintf(place->name, sizeof place->name, "%s", name);
  int readable = open(path, O_RDONLY | O_CLOEXEC);  // it may be open for writing alone
  if (syscall(SYS_pread64, readable, place->bytes, place->size, 0L) != (ssize_t)place->size) sim_abort("a file is short");
  syscall(SYS_close, readable);
}

static int bring_to_disk(int descriptor) {
  switch_threads();
  effect();
  if (dead || !simulated) return 0;
  if (fault(SIM_SYNC)) return (int)failing(EIO);
  make_durable(descriptor);
  return 0;
}
int fsync(int descriptor) { return bring_to_disk(descriptor); }
int fdatasync(int descriptor) { return bring_to_disk(descriptor); }

int posix_fallocate(int descriptor, off_t offset, off_t count) {
  effect();
  if (dead) return 0;
  if (fault(SIM_DISK_FULL)) return ENOSPC;
  struct stat status;
  if (fstat(descriptor, &status) != 0) return errno;
  if (status.st_size >= offset + count) return 0;
  return syscall(SYS_ftruncate, descriptor, offset + count) == 0 ? 0 : errno;
}

int ftruncate(int descriptor, off_t size) {
  return (int)syscall(SYS_ftruncate, descriptor, size);  // of memory alone
}

int memfd_create(const char *name, unsigned flags) {
  if (fault(SIM_MEMFD)) return (int)failing(sim_random() & 1 ? EMFILE : ENOMEM);
  return (int)syscall(SYS_memfd_create, name, flags);
}

ssize_t write(int descriptor, const void *bytes, size_t count) {
  if (!simulated || !is_file(descriptor)) return syscall(SYS_write, descriptor, bytes, count);
  effect();
  if (dead) return (ssize_t)count;
  if (fault(SIM_WRITE)) return failing(sim_random() & 1 ? ENOSPC : EIO);
  if (count > 1 && fault(SIM_WRITE)) count = 1 + sim_random() % (count - 1);
  return syscall(SYS_write, descriptor, bytes, count);
}

ssize_t pwrite(int descriptor, const void *bytes, size_t count, off_t offset) {
  effect();
  if (dead) return (ssize_t)count;
  return syscall(SYS_pwrite64, descriptor, bytes, count, offset);
}
ssize_t pwrite64(int descriptor, const void *bytes, size_t count, off_t offset) {
  return pwrite(descriptor, bytes, count, offset);
}

static void note_rename(const char *old, const char *name) {
  if (rename_count == RENAMES) sim_abort("too many names");
  snprintf(renames[rename_count].name, sizeof renames[0].name, "%s", name);
  int former = open(name, O_RDWR | O_CLOEXEC);
  renames[rename_count].former = former < 0 ? -1 : sim_own(former);
  renames[rename_count].durable = (struct durable){0};
  renames[rename_count].stays = false;
  struct durable *replaced = durable_of(name), *moved = durable_of(old);
  if (replaced) {
    renames[rename_count].durable = *replaced;
    *replaced = (struct durable){0};
  }
  if (moved) snprintf(moved->name, sizeof moved->name, "%s", name);
  rename_count++;
}

int rename(const char *old, const char *new) {
  if (!in_folder(new)) return (int)syscall(SYS_rename, old, new);
  switch_threads();
  effect();
  if (dead) return 0;
  if (fault(SIM_RENAME)) return (int)failing(EIO);
  note_rename(old, new);
  return (int)syscall(SYS_rename, old, new);
}

int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
  effect();
  if (dead) return 0;
  return (int)syscall(SYS_renameat2, from, old, to, new, flags);
}

int unlink(const char *path) {
  if (in_folder(path)) {
    switch_threads();
    effect();
    if (dead) return 0;
    struct durable *file = durable_of(path);
    if (file) forget(file);
  }
  return (int)syscall(SYS_unlink, path);
}

/// The path of a name in a folder; false: it has none.
static bool path_of(int folder, const char *name, char path[160]) {
  char link[40], place[128] = {0};
  if (name[0] == '/') return snprintf(path, 160, "%s", name) < 160;
  snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
  if (readlink(link, place, sizeof place - 1) < 0) return false;
  return snprintf(path, 160, "%s/%s", place, name) < 160;
}

int renameat(int from, const char *old, int to, const char *new) {
  char old_path[160], new_path[160];
  if (path_of(from, old, old_path) && path_of(to, new, new_path) && in_folder(new_path)) return rename(old_path, new_path);
  return (int)syscall(SYS_renameat2, from, old, to, new, 0);
}

int unlinkat(int from, const char *name, int flags) {
  char path[160];
  if (flags == 0 && path_of(from, name, path) && in_folder(path)) return unlink(path);
  return (int)syscall(SYS_unlinkat, from, name, flags);
}

static void spoil(const char *path) {
  int descriptor = open(path, O_RDWR | O_CLOEXEC);
  struct stat status;
  if (descriptor < 0 || fstat(descriptor, &status) != 0) return;
  struct durable *known = durable_of(path);
  static const char zeroes[4096];
  for (off_t offset = 0; offset < status.st_size; offset += 4096) {
    if (sim_random() & 1) continue;  // the disk has the new page
    size_t count = (size_t)(status.st_size - offset < 4096 ? status.st_size - offset : 4096);
    const char *old = zeroes;
    if (known && (size_t)offset + count <= known->size) old = known->bytes + offset;
    if (syscall(SYS_pwrite64, descriptor, old, count, offset) < 0) sim_abort("a page cannot be written");
  }
  make_durable(descriptor);
  syscall(SYS_close, descriptor);
}

static int by_name(const void *one, const void *other) { return strcmp(one, other); }

/// Gives a name back to what had it: a link is not possible, as that has no name any more.
static void write_again(const char *name, int former) {
  int again = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  char bytes[4096];
  off_t offset = 0;
  for (ssize_t count; (count = syscall(SYS_pread64, former, bytes, sizeof bytes, offset)) > 0; offset += count) {
    if (syscall(SYS_pwrite64, again, bytes, count, offset) != count) sim_abort("a file cannot be written again");
  }
  syscall(SYS_close, again);
}

void sim_lose_power(void) {
  int last = rename_count;
  while (rename_count > 0) {
    rename_count--;
    int former = renames[rename_count].former;
    bool stays = sim_random() & 1;
    // One that a later one replaced has no effect.
    for (int i = rename_count + 1; i < last; i++) {
      if (renames[i].stays && !strcmp(renames[i].name, renames[rename_count].name)) stays = true;
    }
    renames[rename_count].stays = stays;
    if (stays) {
      forget(&renames[rename_count].durable);
    } else {
      struct durable *lost = durable_of(renames[rename_count].name);
      if (lost) forget(lost);
      syscall(SYS_unlink, renames[rename_count].name);
      if (former >= 0) {
        for (int i = 0; i < FILES; i++) {
          if (durable[i].name[0]) continue;
          durable[i] = renames[rename_count].durable;
          break;
        }
        write_again(renames[rename_count].name, former);
      }
    }
    if (former >= 0) syscall(SYS_close, former);
  }
  static char names[FILES][256];
  int count = 0;
  DIR *directory = opendir(folder);
  if (!directory) return;
  for (struct dirent *entry; (entry = readdir(directory)) && count < FILES;) {
    if (entry->d_name[0] != '.') snprintf(names[count++], 256, "%s", entry->d_name);
  }
  closedir(directory);
  qsort(names, (size_t)count, 256, by_name);
  for (int i = 0; i < count; i++) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    spoil(path);
  }
}

// MARK: The service manager and the journal

int sim_store_limit = 64;
static struct {
  char name[120];
  int descriptor;
} store[256];
static int store_count;

int sim_store_count(void) { return store_count; }
int sim_store_descriptor(int index) { return store[index].descriptor; }
const char *sim_store_name(int index) { return store[index].name; }
void sim_store_clear(void) {
  while (store_count > 0) syscall(SYS_close, store[--store_count].descriptor);
}

static bool line_of(const char *state, const char *key, char *value, size_t room) {
  for (const char *line = state; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
    if (strncmp(line, key, strlen(key))) continue;
    snprintf(value, room, "%.*s", (int)strcspn(line + strlen(key), "\n"), line + strlen(key));
    return true;
  }
  return false;
}

int sd_pid_notify_with_fds(pid_t process, int unset, const char *state, const int *descriptors, unsigned count) {
  switch_threads();
  effect();
  if (dead) return 1;
  char value[200], name[120] = "stored";
  line_of(state, "FDNAME=", name, sizeof name);
  if (line_of(state, "FDSTOREREMOVE=1", value, sizeof value)) {
    for (int i = 0; i < store_count;) {
      if (strcmp(store[i].name, name)) {
        i++;
        continue;
      }
      syscall(SYS_close, store[i].descriptor);
      memmove(&store[i], &store[i + 1], (size_t)(--store_count - i) * sizeof store[0]);
    }
  }
  if (line_of(state, "FDSTORE=1", value, sizeof value)) {
    for (unsigned i = 0; i < count; i++) {
      if (store_count >= sim_store_limit || store_count >= 256 || fault(SIM_STORE)) continue;
      snprintf(store[store_count].name, sizeof name, "%s", name);
      store[store_count++].descriptor = fcntl(descriptors[i], F_DUPFD_CLOEXEC, FIRST_OWN);
    }
  }
  return 1;
}
int sd_notify(int unset, const char *state) { return sd_pid_notify_with_fds(0, unset, state, NULL, 0); }
int sd_notify_barrier(int unset, uint64_t timeout) { return 1; }
int sd_watchdog_enabled(int unset, uint64_t *microseconds) { return 0; }

uint64_t sim_journal_lines;
void (*sim_journal)(const char *line);
int sim_ids_may_decrease;

int sd_journal_sendv(const struct iovec *parts, int count) {
  if (dead) return 0;
  sim_journal_lines++;
  for (int i = 0; i < count; i++) {
    if (parts[i].iov_len < 8 || memcmp(parts[i].iov_base, "MESSAGE=", 8)) continue;
    char line[600];
    snprintf(line, sizeof line, "%.*s", (int)(parts[i].iov_len - 8), (const char *)parts[i].iov_base + 8);
    if (strstr(line, "ids may decrease")) sim_ids_may_decrease = 1;
    if (sim_journal) sim_journal(line);
  }
  return 0;
}

// MARK: A run

struct sim_request sim_request;
static int32_t sim_steps[1 << 20];
int32_t sim_step(int index) { return sim_steps[index]; }
enum { RUNNERS = 8 };
static struct {
  int request, answer;
} runners[RUNNERS];
static int runner_count;
struct answer {
  int status;
  uint64_t microseconds;
};

static bool transfer(ssize_t (*how)(int, void *, size_t), int descriptor, void *bytes, size_t count) {
  for (size_t done = 0; done < count;) {
    ssize_t step = how(descriptor, (char *)bytes + done, count - done);
    if (step <= 0) return false;
    done += (size_t)step;
  }
  return true;
}
static ssize_t write_some(int descriptor, void *bytes, size_t count) { return write(descriptor, bytes, count); }

static void be_runner(int request, int answer, void (*run)(void)) {
  while (transfer(read, request, &sim_request, sizeof sim_request) &&
         transfer(read, request, sim_steps, (size_t)sim_request.step_count * sizeof(int32_t))) {
    pid_t process = fork();
    if (process == 0) {
      syscall(SYS_close, request);
      syscall(SYS_close, answer);
      char path[220];
      snprintf(path, sizeof path, "%s.out", sim_request.folder);
      int out = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
      dup2(out, 2);
      if (out != 2) syscall(SYS_close, out);
      run();
      _exit(72);
    }
    struct answer done = {.status = -1};
    struct rusage used = {0};
    if (process > 0) wait4(process, &done.status, 0, &used);
    done.microseconds = (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 +
                        (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    if (!transfer(write_some, answer, &done, sizeof done)) break;
  }
  _exit(0);
}

void sim_prepare(void (*run)(void)) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  int count = cores < 1 ? 1 : cores > RUNNERS ? RUNNERS : (int)cores;
  for (runner_count = 0; runner_count < count; runner_count++) {
    int request[2], answer[2];
    if (pipe2(request, O_CLOEXEC) != 0 || pipe2(answer, O_CLOEXEC) != 0) sim_abort("no pipes");
    pid_t process = fork();
    if (process < 0) sim_abort("no process");
    if (process == 0) {
      // Descriptors have the same numbers in each of them.
      int low[2] = {fcntl(request[0], F_DUPFD_CLOEXEC, 500), fcntl(answer[1], F_DUPFD_CLOEXEC, 500)};
      for (int i = 3; i < 500; i++) syscall(SYS_close, i);
      be_runner(low[0], low[1], run);
    }
    syscall(SYS_close, request[0]);
    syscall(SYS_close, answer[1]);
    runners[runner_count].request = request[1];
    runners[runner_count].answer = answer[0];
  }
}

void sim_finish(void) {
  for (int i = 0; i < runner_count; i++) syscall(SYS_close, runners[i].request);
  while (waitpid(-1, NULL, 0) > 0 || errno == EINTR) continue;
}

int sim_runner_count(void) { return runner_count; }
int sim_runner(int index) { return runners[index].answer; }

void sim_ask(int index, const struct sim_request *request, const int32_t *steps) {
  int descriptor = runners[index].request;
  if (!transfer(write_some, descriptor, (void *)request, sizeof *request) ||
      !transfer(write_some, descriptor, (void *)steps, (size_t)request->step_count * sizeof(int32_t))) {
    sim_abort("a runner is gone");
  }
}

int sim_answer(int index, uint64_t *microseconds) {
  struct answer done;
  if (!transfer(read, runners[index].answer, &done, sizeof done)) sim_abort("a runner is gone");
  *microseconds = done.microseconds;
  return done.status;
}

static void crashed(int number, siginfo_t *information, void *context) {
  void *frames[40];
  dprintf(2, "simulation: signal %d, address %p%s\n", number, information->si_addr, dead ? ", in a process that was killed" : "");
  backtrace_symbols_fd(frames, backtrace(frames, 40), 2);
  signal(number, SIG_DFL);
  raise(number);
}

/// Says where a run has crashed.
static void watch_crashes(void) {
  static char stack[128 << 10];
  stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
  sigaltstack(&other, NULL);
  void *frames[4];
  backtrace(frames, 4);  // loads what it needs
  struct sigaction action = {.sa_sigaction = crashed, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
  const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGABRT};
  for (int i = 0; i < 5; i++) sigaction(numbers[i], &action, NULL);
}

void sim_begin(uint64_t seed, const char *path) {
  signal(SIGPIPE, SIG_IGN);
  watch_crashes();
  arena = &arenas[1];
  simulated = true;
  random_state = seed;
  snprintf(folder, sizeof folder, "%s", path);
  base_descriptors = 0;
  base_descriptors = sim_open_descriptors();
}
